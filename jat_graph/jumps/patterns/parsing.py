"""Patterns by name: as text, ``window:256+global:1``, and Longformer's and BigBird's."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields

from jat_graph.jumps.patterns.base import Intersection, Pattern, Union, check_count
from jat_graph.jumps.patterns.factorised import Fixed, Strided
from jat_graph.jumps.patterns.positions import (
    Causal,
    DilatedWindow,
    GlobalTokens,
    LocalBlocks,
    RandomBlocks,
    Window,
)

KINDS: dict[str, type[Pattern]] = {
    kind.name: kind
    for kind in (
        *(Window, DilatedWindow, LocalBlocks, GlobalTokens),
        *(Strided, Fixed, RandomBlocks, Causal),
    )
}
TOKENS = re.compile(r"[+&()]|[^+&()\s]+|\S")


def parse_pattern(spec: str) -> Pattern:
    """Read a pattern from text.

    ``name:argument:argument`` is a pattern, ``+`` joins patterns to a union, ``&`` to an
    intersection, which binds tighter, and brackets change that.

    Args:
        spec: The text, such as ``"window:256+global:1"``.

    Returns:
        The pattern; its own ``spec`` is this one but for spaces and needless brackets.

    Raises:
        ValueError: If the text is no pattern, or a number does not fit.

    Reference:
        The names are those of the table in ``docs/patterns.md``.
    """
    if not isinstance(spec, str):
        raise ValueError(f"pattern must be text such as 'window:256', got {spec!r}")
    for wrong in "|,":
        if wrong in spec:
            raise ValueError(f"pattern must join patterns with +, not {wrong!r}, got {spec!r}")
    tokens = TOKENS.findall(spec)[::-1]
    pattern = _read_joined(tokens, spec)
    if tokens:
        raise ValueError(f"pattern must end after {pattern.spec!r}, got {spec!r}")
    return pattern


def _read_joined(tokens: list[str], spec: str, signs: str = "+&") -> Pattern:
    """Read patterns joined by the first sign, each of patterns joined by the others."""
    if not signs:
        return _read_one(tokens, spec)
    members = [_read_joined(tokens, spec, signs[1:])]
    while tokens and tokens[-1] == signs[0]:
        tokens.pop()
        members.append(_read_joined(tokens, spec, signs[1:]))
    kind = Union if signs[0] == "+" else Intersection
    return members[0] if len(members) == 1 else kind(*members)


def _read_one(tokens: list[str], spec: str) -> Pattern:
    token = tokens.pop() if tokens else ""
    if token == "(":
        pattern = _read_joined(tokens, spec)
        if not tokens or tokens.pop() != ")":
            raise ValueError(f"pattern must close its brackets, got {spec!r}")
        return pattern
    if token in ("", "+", "&", ")"):
        raise ValueError(f"pattern must be names joined by + or &, got {spec!r}")
    name, *arguments = token.split(":")
    if name not in KINDS:
        raise ValueError(f"pattern must be one of {', '.join(sorted(KINDS))}, got {name!r}")
    kind = KINDS[name]
    needed = [f":{field.name.upper()}" for field in fields(kind) if field.default is MISSING]
    others = [f"[:{field.name.upper()}]" for field in fields(kind)[len(needed) :]]
    if not len(needed) <= len(arguments) <= len(fields(kind)):
        usage = "".join([name, *needed, *others])
        raise ValueError(f"pattern must be {usage}, got {token!r}")
    return kind(*(int(a) if re.fullmatch(r"[+-]?\d+", a) else a for a in arguments))


def longformer(attention_window: int = 512, num_global: int | None = 1) -> Union:
    """Return Longformer's pattern: a window, and global tokens at the start, or of the call.

    Args:
        attention_window: Keys in the window, half on each side, the token itself not counted, as
            in ``LongformerConfig``. (default: 512)
        num_global: How many of the first tokens are global; None for those that each call names, as
            in Longformer's own models. (default: 1)

    Returns:
        ``window:257+global:1``, if nothing is given.

    Raises:
        ValueError: If a number does not fit.

    Reference:
        Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1.
    """
    check_count("attention_window", attention_window)
    if attention_window % 2:
        raise ValueError(f"attention_window must be even, got {attention_window}")
    return Union(Window(attention_window // 2 + 1), GlobalTokens(num_global))


def bigbird(block_size: int = 64, num_random_blocks: int = 3, seed: int = 0) -> Union:
    """Return BigBird's pattern: the own block and its neighbours, a global one, random ones.

    transformers' BigBird makes the last block of the padded input global, too; here only the first
    is, so that a pattern does not depend on what follows. The random graph is that of
    :class:`RandomBlocks`.

    Args:
        block_size: Tokens in a block. (default: 64)
        num_random_blocks: Random blocks that each one draws. (default: 3)
        seed: Of the random blocks. (default: 0)

    Returns:
        ``local:64:both+global:64+random:64:3``, if nothing is given.

    Raises:
        ValueError: If a number does not fit.

    Reference:
        Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", section 2; the names are
        those of ``BigBirdConfig``.
    """
    return Union(
        LocalBlocks(block_size, "both"),
        GlobalTokens(block_size),
        RandomBlocks(block_size, num_random_blocks, seed),
    )
