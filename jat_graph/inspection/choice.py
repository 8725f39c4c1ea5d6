"""Which heads and which tokens are looked at; what is not there is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from jat_graph.checks.numbers import check_indices
from jat_graph.hf.describing import numbers

Indices: TypeAlias = int | Sequence[int] | None  # one, some, or all


def choose_heads(
    jumping: Mapping[int, tuple[int, ...]],  # the jump heads of each layer
    layers: Indices = None,
    heads: Indices = None,
    kind: str = "jump ",
) -> tuple[tuple[int, int], ...]:
    """Return the layers and heads that are looked at, in order.

    Each layer must have jump heads, and each head must jump in one of the layers, or be
    of the ``kind`` that is given instead.
    """
    wanted, own = (
        None if some is None else check_indices(name, (some,) if isinstance(some, int) else some)
        for name, some in (("layers", layers), ("heads", heads))
    )
    for layer in wanted or ():
        if layer not in jumping:
            raise ValueError(f"layer {layer} must have {kind}heads, got only {_listed(jumping)}")
    chosen = jumping if wanted is None else {layer: jumping[layer] for layer in wanted}
    for head in own or ():
        if not any(head in some for some in chosen.values()):
            raise ValueError(f"head {head} must be a {kind}head, got only {_listed(chosen)}")
    return tuple(
        (layer, head)
        for layer, some in chosen.items()
        for head in some
        if own is None or head in own
    )


def _listed(jumping: Mapping[int, tuple[int, ...]]) -> str:
    """Name the jump heads in few words: neighbouring layers of the same heads together."""
    runs = groupby(sorted(jumping), key=lambda layer: jumping[layer])
    return "; ".join(
        f"{_named('layer', tuple(layers))}: {_named('head', heads)}" for heads, layers in runs
    )


def _named(word: str, indices: tuple[int, ...]) -> str:
    return f"{word}{'s' * (len(indices) > 1)} {numbers(indices)}"


def check_span(tokens: range) -> None:
    """Refuse what names no tokens that follow each other."""
    if not isinstance(tokens, range) or tokens.step != 1 or not 0 <= tokens.start < tokens.stop:
        raise ValueError(
            "tokens must be a range of positions that follow each other, as range(40, 90), "
            f"got {tokens!r}"
        )


def choose_tokens(tokens: range | None, length: int) -> range:
    """Return the positions that are looked at, of a text of so many tokens."""
    if tokens is None:
        return range(length)
    check_span(tokens)
    if tokens.stop > length:
        raise ValueError(
            f"tokens must lie in a text of {length}, 0:{length}, got {tokens.start}:{tokens.stop}"
        )
    return tokens
