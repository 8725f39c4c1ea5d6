"""Attention under a pattern, behind the checks."""

from __future__ import annotations

from torch import Tensor

from jat_graph.attention.heads import HeadGroup, join_groups, merge_heads, split_heads
from jat_graph.attention.patterns.choice import BACKENDS, choose
from jat_graph.attention.patterns.job import Job
from jat_graph.masks import TokenMask
from jat_graph.patterns.base import Pattern
from jat_graph.patterns.rows import pattern_rows as pattern_rows


def attend_within(
    pattern: Pattern,
    groups: list[HeadGroup],
    value: Tensor,  # [B, H, L, Dv]
    *,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return attention of all heads on their features, each query within a pattern."""
    groups = [
        part for group in join_groups(groups, value.size(-1)) for part in _by_rule(group, pattern)
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


def _by_rule(group: HeadGroup, pattern: Pattern) -> list[HeadGroup]:
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


def run_pattern(
    query: Tensor,  # [B, H, L, F]
    key: Tensor,  # [B, H, L, F]
    value: Tensor,  # [B, H, L, Dv]
    *,
    pattern: Pattern,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
    backend: str = "auto",
) -> Tensor:  # [B, H, L, Dv]
    """Return attention under a pattern and a mask."""
    pattern.check_size(query.size(0), query.size(2))
    job = Job(query, key, value, pattern, mask, dropout_p, scale)
    output: Tensor = BACKENDS[choose(backend, job).backend].run(job)
    return output
