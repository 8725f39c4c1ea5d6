"""Attention of all heads on their features: everywhere, under a mask, or within a pattern."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from jat_graph.attention.heads import merge_heads, split_heads
from jat_graph.attention.patterns.running import run_pattern
from jat_graph.attention.propagation import HeadGroup, join_groups
from jat_graph.attention.softmax import softmax_rows, wide_attention
from jat_graph.masks import TokenMask
from jat_graph.patterns import Pattern
from jat_graph.voting.scores import attention_scores


def attend(
    groups: list[HeadGroup],
    value: Tensor,  # Values [B, H, L, Dv]
    *,
    attn_mask: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return attention of all heads on the features that :func:`head_groups` gave them."""
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
    value: Tensor,  # Values [B, H, L, Dv]
    *,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return attention of all heads on their features, under a mask and, if given, a pattern."""
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
    value: Tensor,  # Values [B, H, L, Dv]
    *,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return attention of all heads on their features, each query within a pattern."""
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
) -> Tensor:  # [B, H, L, L]
    """Return the attention probabilities of all heads."""
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
