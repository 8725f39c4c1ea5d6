"""Attention under a pattern, as a function."""

from __future__ import annotations

from torch import Tensor

from jat_graph.attention.patterns.backends import PatternChoice, choose, run_pattern
from jat_graph.attention.patterns.dense import PatternInputs
from jat_graph.checks.tensors import check_dropout, check_heads, check_scale, clean_padding
from jat_graph.masks.tokens import resolve_mask
from jat_graph.patterns.base import Pattern


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
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        value: Values ``[B, H, L, Dv]``.
        pattern: Which pairs a head may attend to; positions in it count valid tokens.
        attention_mask: Bool (True = attend) or additive, ``[B, L]`` or ``[B|1, H|1, L, L]``.
            (default: None)
        is_causal: Mask later tokens, too. (default: False)
        dropout_p: Dropout of the attention probabilities. (default: 0.0)
        scale: Factor of the scores. (default: None, which means 1/√D)
        backend: ``"dense"``, ``"blocked"``, ``"flex"`` or ``"graph"``, which never falls back, or
            ``"auto"``. (default: ``"auto"``)

    Returns:
        The heads' outputs; zeros for padding and for a query that may attend to nothing.

    Raises:
        ValueError: If a shape, a value, the mask, the pattern or the backend does not fit.

    Shapes:
        - **output:** ``[B, H, L, Dv]``

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
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        value: Values ``[B, H, L, Dv]``.
        pattern: As for :func:`pattern_attention`, and so are the others.
        attention_mask: Which tokens, or pairs, count. (default: None)
        is_causal: Mask later tokens, too. (default: False)
        dropout_p: Dropout of the attention probabilities. (default: 0.0)
        backend: The one asked for. (default: ``"auto"``)

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
