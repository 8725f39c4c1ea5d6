"""Jump attention: ordinary attention on queries and keys that were propagated along the graph."""

from __future__ import annotations

from typing import Literal, overload

from torch import Tensor

from jat_graph.attention.heads import JumpHeads
from jat_graph.attention.patterns.running import attend_within
from jat_graph.attention.propagation import (
    explain_backend,
    graph_operator,
    head_groups,
    needs_gradient,
)
from jat_graph.attention.softmax import attend
from jat_graph.checks.tensors import check_dropout, check_heads, check_scale, clean_padding
from jat_graph.config import JatConfig, check_config
from jat_graph.masks import TokenMask, resolve_mask
from jat_graph.operators import BackendChoice, NormalizedOperator


def jump_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    r"""Return softmax(scale · Σ_p w_p Âᵖ Q Kᵀ (Âᵖ)ᵀ) V, every head jumping.

    The shape of :func:`torch.nn.functional.scaled_dot_product_attention`; ``config.heads`` and
    ``config.layers`` are not read here. With ``config.pattern`` the propagated scores are read only
    where the pattern allows it, and a query that may attend to nothing gives zeros.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        value: Values ``[B, H, L, Dv]``.
        config: The settings.
        attention_mask: Bool (True = attend) or additive, ``[B, L]`` or ``[B|1, H|1, L, L]``.
            (default: None)
        is_causal: Mask later tokens, too. (default: False)
        dropout_p: Dropout of the attention probabilities. (default: 0.0)
        scale: Factor of the scores. (default: None, which means 1/√D)

    Returns:
        The heads' outputs, in the dtype of ``value``.

    Raises:
        ValueError: If a shape, a value, the mask or the config does not fit.

    Shapes:
        - **output:** ``[B, H, L, Dv]``

    Reference:
        Eq. 7 and 9 of the JAT paper.
    """
    check_config(config)
    check_heads(query, key, value)
    check_dropout(dropout_p)
    scale = check_scale(scale, query.size(-1))
    mask = resolve_mask(attention_mask, is_causal, query)
    query, key, value = clean_padding(mask.valid, query=query, key=key, value=value)
    jumping = JumpHeads.everyone(config, query.size(1))
    return attend_heads(query, key, value, jumping, mask=mask, dropout_p=dropout_p, scale=scale)


def attend_heads(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    value: Tensor,  # [B, H, L, Dv]
    jumping: JumpHeads,
    *,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return attention of heads some of which jump, under a mask and within their pattern."""
    groups = head_groups(query, key, jumping, mask=mask, scale=scale)
    options = {"dropout_p": dropout_p, "scale": scale}
    if jumping.pattern is not None:
        return attend_within(jumping.pattern, groups, value, mask=mask, **options)
    attn_mask, is_causal = mask.attention_mask(query.size(2), query)
    return attend(groups, value, attn_mask=attn_mask, is_causal=is_causal, **options)


@overload
def jump_operator(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    explain: Literal[False] = False,
) -> NormalizedOperator: ...
@overload
def jump_operator(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    explain: Literal[True],
) -> tuple[NormalizedOperator, BackendChoice]: ...
def jump_operator(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    explain: bool = False,
) -> NormalizedOperator | tuple[NormalizedOperator, BackendChoice]:
    r"""Return Â as an operator; A is its ``base``.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        config: The settings.
        attention_mask: Bool (True = attend) or additive, ``[B, L]`` or ``[B|1, H|1, L, L]``.
            (default: None)
        is_causal: Mask later tokens, too. (default: False)
        scale: Factor of the scores. (default: None, which means 1/√D)
        explain: Also return which backend was chosen and why; :func:`jump_attention` and attached
            models choose alike. (default: False)

    Returns:
        Â = D̃^-½ (A + I) D̃^-½, and with ``explain`` a :class:`jat_graph.operators.BackendChoice`,
        which prints as one line.

    Raises:
        ValueError: If a shape, a value, the mask, the config or the backend does not fit.

    Shapes:
        - **output:** an operator of shape ``[B, H, L, L]``

    Reference:
        Eq. 2 to 4 of the JAT paper.
    """
    check_config(config)
    check_heads(query, key)
    scale = check_scale(scale, query.size(-1))
    mask = resolve_mask(attention_mask, is_causal, query)
    query, key = clean_padding(mask.valid, query=query, key=key)
    jumping = JumpHeads.everyone(config, query.size(1))
    operator, ballot = graph_operator(query, key, jumping, mask, scale)
    if not explain:
        return operator
    backward = needs_gradient(query, key)
    return operator, explain_backend(jumping, ballot, query.size(-1), backward)
