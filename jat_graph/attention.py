"""Jump attention: ordinary attention on queries and keys that were propagated along the graph."""

from __future__ import annotations

from typing import Literal, overload

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
from jat_graph.heads import merge_heads, split_heads
from jat_graph.masks import TokenMask, resolve_mask
from jat_graph.operators import BackendChoice, NormalizedOperator
from jat_graph.patterns import Pattern
from jat_graph.patterns.running import run_pattern
from jat_graph.propagation import (
    HeadGroup,
    explain_backend,
    graph_operator,
    head_groups,
    join_groups,
    needs_gradient,
)
from jat_graph.scores import attention_scores
from jat_graph.wide_attention import softmax_rows, wide_attention


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
    heads = tuple(range(query.size(1)))
    groups = head_groups(query, key, config=config, heads=heads, mask=mask, scale=scale)
    pattern = config.attention_pattern()
    return attend_under(mask, pattern, groups, value, dropout_p=dropout_p, scale=scale)


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
    groups: list[HeadGroup],
    value: Tensor,
    *,
    attn_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Return attention of all heads on the features that :func:`head_groups` gave them.

    Args:
        groups: The heads and their features.
        value: Values ``[B, H, L, Dv]``.
        attn_mask: The mask for the final scores, as SDPA takes it.
        is_causal: Whether SDPA shall mask causally.
        dropout_p: Dropout of the attention probabilities.
        scale: Factor of the scores.

    Returns:
        The heads' outputs.

    Shapes:
        - **output:** ``[B, H, L, Dv]``
    """
    # Where SDPA's fast path takes the features as they are, ordinary heads share it.
    groups = join_groups(groups, value.size(-1))
    heads = [group.heads for group in groups]
    outputs = []
    for group, own in zip(groups, split_heads(value, heads), strict=True):
        masks = _cut_heads(attn_mask, group.heads)
        # Ordinary heads go as they are: their outputs are the base model's, bit for bit.
        run = wide_attention if group.jumps else F.scaled_dot_product_attention
        outputs.append(run(group.query, group.key, own, masks, dropout_p, is_causal, scale=scale))
    return merge_heads(heads, outputs)


def attend_under(
    mask: TokenMask,
    pattern: Pattern | None,
    groups: list[HeadGroup],
    value: Tensor,
    *,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Return attention of all heads on their features, under a mask and, if given, a pattern.

    Args:
        mask: Which query may attend to which key.
        pattern: Where scores are read, besides; None reads them everywhere.
        groups: The heads and their features, as :func:`head_groups` gave them.
        value: Values ``[B, H, L, Dv]``.
        dropout_p: Dropout of the attention probabilities.
        scale: Factor of the scores.

    Returns:
        The heads' outputs.

    Shapes:
        - **output:** ``[B, H, L, Dv]``
    """
    if pattern is not None:
        return attend_within(pattern, groups, value, mask=mask, dropout_p=dropout_p, scale=scale)
    attn_mask, is_causal = mask.attention_mask(value.size(2), groups[0].query)
    return attend(
        groups,
        value,
        attn_mask=attn_mask,
        is_causal=is_causal,
        dropout_p=dropout_p,
        scale=scale,
    )


def attend_within(
    pattern: Pattern,
    groups: list[HeadGroup],
    value: Tensor,
    *,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Return attention of all heads on their features, each query within a pattern.

    Args:
        pattern: Which pairs a head may attend to.
        groups: The heads and their features, as :func:`head_groups` gave them.
        value: Values ``[B, H, L, Dv]``.
        mask: What else limits attention.
        dropout_p: Dropout of the attention probabilities.
        scale: Factor of the scores.

    Returns:
        The heads' outputs, 0 for a query that may attend to nothing.

    Shapes:
        - **output:** ``[B, H, L, Dv]``
    """
    groups = [
        part
        for group in join_groups(groups, value.size(-1))
        for part in _with_one_rule(group, pattern)
    ]
    heads = [group.heads for group in groups]
    outputs = [
        run_pattern(
            group.query,
            group.key,
            own,
            pattern=pattern.of_head(group.heads[0]),
            mask=mask.select_heads(group.heads),
            dropout_p=dropout_p,
            scale=scale,
        )
        for group, own in zip(groups, split_heads(value, heads), strict=True)
    ]
    return merge_heads(heads, outputs)


def _with_one_rule(group: HeadGroup, pattern: Pattern) -> list[HeadGroup]:
    """Split a group into heads that share the pattern's rule, which may differ between heads."""
    places: dict[int, list[int]] = {}
    for place, head in enumerate(group.heads):
        places.setdefault(head % pattern.period, []).append(place)
    parts = [tuple(part) for part in places.values()]
    cut = zip(parts, split_heads(group.query, parts), split_heads(group.key, parts), strict=True)
    return [
        HeadGroup(tuple(group.heads[place] for place in part), query, key, group.jumps)
        for part, query, key in cut
    ]


def attention_probabilities(
    groups: list[HeadGroup], *, attn_mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """Return the attention probabilities of all heads.

    Args:
        groups: The heads and their features, as :func:`head_groups` gave them.
        attn_mask: The mask for the final scores, as SDPA takes it.
        is_causal: Whether the final scores are masked causally.
        scale: Factor of the scores.

    Returns:
        Rows that sum to one, or are zero where everything is masked; in the dtype of the features.

    Shapes:
        - **output:** ``[B, H, L, L]``
    """
    rows = []
    for group in groups:
        scores = attention_scores(group.query, group.key, scale)
        masks = _cut_heads(attn_mask, group.heads)
        rows.append(softmax_rows(scores, masks, is_causal).to(group.query.dtype))
    return merge_heads([group.heads for group in groups], rows)


def _cut_heads(attn_mask: Tensor | None, heads: tuple[int, ...]) -> Tensor | None:
    if attn_mask is None or attn_mask.size(1) in (1, len(heads)):
        return attn_mask
    return attn_mask[:, list(heads)]
