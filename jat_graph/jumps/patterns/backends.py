"""Attention under a pattern as a function: the backend that does it, and why."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jat_graph.core.heads import HeadGroup, merge_heads
from jat_graph.core.masks import TokenMask, resolve_mask
from jat_graph.core.tensors import check_dropout, check_heads, check_scale, clean_padding
from jat_graph.jumps.patterns.base import Pattern
from jat_graph.jumps.patterns.dense import PatternInputs

BACKENDS = ("dense", "blocked")

# Judged, not measured: up to the first length one dense call should be faster whatever the pattern,
# above the second blocks should be.
SHORT, MEDIUM = 256, 1024

# Numbers of the largest dense mask: 1 GiB as floats.
LARGEST_MASK = 2**28


@dataclass(frozen=True)
class PatternChoice:
    """Which backend runs a pattern, and why.

    Args:
        backend: ``"dense"`` or ``"blocked"``.
        why: One sentence.
    """

    backend: str
    why: str

    def __str__(self) -> str:
        return f"{self.backend}: {self.why}"


def attend_within(
    pattern: Pattern, groups: list[HeadGroup], *, mask: TokenMask, dropout_p: float, scale: float
) -> Tensor:  # [B, H, L, Dv]
    """Return attention of all heads on their features, each query within a pattern."""
    pattern.check_size(groups[0].value.size(0), groups[0].value.size(2))
    outputs = []
    for group in groups:
        own = mask.select_heads(group.heads)
        output = run_pattern(PatternInputs(*group[:4], pattern, own, dropout_p, scale))
        outputs.append(group.finish(output))
    return merge_heads([group.heads for group in groups], outputs)


def run_pattern(inputs: PatternInputs, backend: str = "auto") -> Tensor:  # [B, H, L, Dv]
    """Return attention under a pattern and a mask, by the backend asked for."""
    name = choose(backend, inputs).backend
    if name == "blocked":  # loaded at its first use: dynamo comes with it
        from jat_graph.jumps.patterns.blocked import run
    else:
        from jat_graph.jumps.patterns.dense import run
    output: Tensor = run(inputs)
    return output


def choose(backend: str, inputs: PatternInputs) -> PatternChoice:
    """Return the backend asked for, if it can run, or for ``"auto"`` the one that suits."""
    length, against_blocks = inputs.query.size(2), unsupported("blocked", inputs)
    tracing = torch.compiler.is_compiling()  # when a number in a text would be fixed
    if backend not in ("auto", *BACKENDS):
        raise ValueError(f"backend must be auto, {', '.join(BACKENDS)}, got {backend!r}")
    if backend != "auto":
        why = "the caller asks for it"
    elif against_blocks:
        backend, why = "dense", f"'blocked' cannot run: {'; '.join(against_blocks)}"
    elif length <= SHORT:
        backend, why = "dense", "" if tracing else f"{length} tokens are at most {SHORT}"
    elif length > MEDIUM or inputs.pattern.num_sequences:
        backend, why = "blocked", "" if tracing else f"{length} tokens are more than {SHORT}"
    else:
        from jat_graph.jumps.patterns.layout import share_read  # dynamo comes with it

        share = share_read(inputs.rule, length, inputs.heads)
        backend = "dense" if share > 0.5 else "blocked"
        why = "" if tracing else f"blocks would read {share:.0%} of all pairs of {length} tokens"
    if reasons := unsupported(backend, inputs):
        raise ValueError(f"backend {backend!r} cannot run: {'; '.join(reasons)}")
    return PatternChoice(backend, why)


def unsupported(backend: str, inputs: PatternInputs) -> list[str]:
    """Say why a backend cannot run, one phrase a reason."""
    mask, length = inputs.mask, inputs.query.size(2)
    if backend == "dense":
        if length**2 <= LARGEST_MASK:
            return []
        return [f"a mask of {length}×{length} is too large; use 'blocked'"]
    general = mask.pairs is not None or mask.bias is not None
    return ["it takes padding and causal masks only; use 'dense'"] if general else []


def pattern_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pattern: Pattern,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    backend: str = "auto",
) -> Tensor:
    r"""Return softmax(scale · Q Kᵀ) V over the pairs that a pattern allows.

    The shape of :func:`torch.nn.functional.scaled_dot_product_attention`. All backends give the
    same; with a window, time and memory of ``"blocked"`` are linear in L.

    Args:
        query, key, value, attention_mask, is_causal, dropout_p, scale: As for
            :func:`jat_graph.jump_attention`.
        pattern: Which pairs a head may attend to; positions in it count valid tokens.
        backend: ``"dense"`` or ``"blocked"``, which never fall back, or "auto". (default: "auto")

    Returns:
        The heads' outputs ``[B, H, L, Dv]``; zeros for padding and queries that may see nothing.

    Raises:
        ValueError: If a shape, a value, the mask, the pattern or the backend does not fit.

    Reference:
        Child et al. 2019, "Generating Long Sequences with Sparse Transformers", Eq. 2 and 3.
    """
    inputs = _checked_inputs(
        query, key, value, pattern, attention_mask, is_causal, dropout_p, scale
    )
    return run_pattern(inputs, backend)


def explain_pattern(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pattern: Pattern,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    backend: str = "auto",
) -> PatternChoice:
    """Say which backend :func:`pattern_attention` takes, and why.

    Args:
        query, key, value, pattern, attention_mask, is_causal, dropout_p, backend: As for
            :func:`pattern_attention`.

    Returns:
        The choice, which prints as one line.

    Raises:
        ValueError: If something does not fit, or the backend cannot run.

    Shapes:
        - **query, key:** ``[B, H, L, D]``

    Reference:
        None; the lengths at which the choice changes are judgement, not measurement.
    """
    inputs = _checked_inputs(query, key, value, pattern, attention_mask, is_causal, dropout_p, None)
    return choose(backend, inputs)


def _checked_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: Pattern,
    attention_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float | None,
) -> PatternInputs:
    if not isinstance(pattern, Pattern):
        raise ValueError(f"pattern must be a Pattern, got {type(pattern).__name__}")
    check_heads(query, key, value)
    check_dropout(dropout_p)
    scale = check_scale(scale, query.size(-1))
    pattern.check_size(query.size(0), query.size(2))
    mask = resolve_mask(attention_mask, is_causal, query)
    query, key, value = clean_padding(mask.valid, query=query, key=key, value=value)
    heads = tuple(range(query.size(1)))
    return PatternInputs(heads, query, key, value, pattern, mask, dropout_p, scale)
