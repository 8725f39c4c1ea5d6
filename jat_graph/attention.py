"""Jump attention: ordinary attention on queries and keys that were propagated along the graph."""

from __future__ import annotations

from typing import Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.checks import (
    check_config,
    check_dropout,
    check_heads,
    check_scale,
    clean_padding,
)
from jat_graph.config import JatConfig
from jat_graph.masks import TokenMask, resolve_mask
from jat_graph.operators import BackendChoice, NormalizedOperator
from jat_graph.propagation import (
    explain_backend,
    graph_operator,
    head_groups,
    merge_heads,
    needs_gradient,
)
from jat_graph.scores import attention_scores


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
    ``config.layers`` are not read here.

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
    attn_mask, causal = mask.attention_mask(query.size(2), query)
    return attend(
        query,
        key,
        value,
        config=config,
        heads=tuple(range(query.size(1))),
        mask=mask,
        attn_mask=attn_mask,
        is_causal=causal,
        dropout_p=dropout_p,
        scale=scale,
    )


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
    operator, ballot = graph_operator(query, key, config, mask, scale)
    if not explain:
        return operator
    backward = needs_gradient(query, key)
    return operator, explain_backend(config, ballot, query.size(-1), backward)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    config: JatConfig,
    heads: tuple[int, ...],
    mask: TokenMask,
    attn_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Return attention of all heads, those in ``heads`` jumping.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        value: Values ``[B, H, L, Dv]``.
        config: The settings over ``heads``, as :meth:`JatConfig.for_layer` gives them.
        heads: The heads that jump.
        mask: The mask for the votes.
        attn_mask: The mask for the final scores, as SDPA takes it.
        is_causal: Whether SDPA shall mask causally.
        dropout_p: Dropout of the attention probabilities.
        scale: Factor of the scores.

    Returns:
        The heads' outputs.

    Raises:
        ValueError: If the mask or the backend does not fit the config.

    Shapes:
        - **output:** ``[B, H, L, Dv]``
    """
    groups = head_groups(query, key, config=config, heads=heads, mask=mask, scale=scale)
    outputs = []
    for group in groups:
        members = slice(None) if len(group.heads) == value.size(1) else list(group.heads)
        features = group.query, group.key, value[:, members]
        masks = _cut_heads(attn_mask, members)
        # Untouched heads go as they are: their outputs are the base model's, bit for bit.
        run = F.scaled_dot_product_attention if group.query is query else _wide_attention
        outputs.append(run(*features, masks, dropout_p, is_causal, scale=scale))
    return merge_heads([group.heads for group in groups], outputs)


def attention_probabilities(
    query: Tensor,
    key: Tensor,
    *,
    config: JatConfig,
    heads: tuple[int, ...],
    mask: TokenMask,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """Return the attention probabilities of all heads, those in ``heads`` after propagation.

    Args:
        query: Queries ``[B, H, L, D]``.
        key: Keys ``[B, H, L, D]``.
        config: The settings over ``heads``.
        heads: The heads that jump; none gives ordinary attention.
        mask: The mask for the votes.
        attn_mask: The mask for the final scores, as SDPA takes it.
        is_causal: Whether the final scores are masked causally.
        scale: Factor of the scores.

    Returns:
        Rows that sum to one, or are zero where everything is masked; in the dtype of ``query``.

    Shapes:
        - **output:** ``[B, H, L, L]``
    """
    groups = head_groups(query, key, config=config, heads=heads, mask=mask, scale=scale)
    rows = []
    for group in groups:
        scores = attention_scores(group.query, group.key, scale)
        masks = _cut_heads(attn_mask, list(group.heads))
        rows.append(_masked_softmax(scores, masks, is_causal).to(query.dtype))
    return merge_heads([group.heads for group in groups], rows)


def _wide_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """Run SDPA; features wider than the values would leave its fast path, so values are padded."""
    width, value_width = query.size(-1), value.size(-1)
    if width > value_width:
        value = F.pad(value, (0, width - value_width))
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    )
    return output[..., :value_width]


def _masked_softmax(scores: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
    length = scores.size(-1)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        later = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return scores.softmax(-1).nan_to_num()  # a row without a key: 0/0


def _cut_heads(attn_mask: Tensor | None, members: slice | list[int]) -> Tensor | None:
    if attn_mask is None or attn_mask.size(1) == 1:
        return attn_mask
    return attn_mask[:, members]
