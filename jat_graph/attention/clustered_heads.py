"""Heads of one layer that read by clusters, each by its own settings, beside dense ones."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from jat_graph.attention.clustered import read_by_clusters
from jat_graph.attention.heads import merge_heads, split_heads
from jat_graph.graph_config import ClusterGraph, ClusterRule
from jat_graph.masks.tokens import TokenMask

DENSE = ClusterRule(None, 0, 0, 0, math.inf, True)  # of heads that do not read by clusters


def layer_rules(
    graph: ClusterGraph, heads: tuple[int, ...], num_heads: int
) -> dict[ClusterRule, tuple[int, ...]]:
    """Return the rules of all heads of a layer, ``heads`` of which read by clusters."""
    rules = {
        rule: tuple(heads[index] for index in own) for rule, own in graph.rules(len(heads)).items()
    }
    others = tuple(head for head in range(num_heads) if head not in heads)
    if others:
        rules[DENSE] = tuple(sorted((*rules.get(DENSE, ()), *others)))
    return rules


def read_heads(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    value: Tensor,  # [B, H, L, Dv]
    rules: Mapping[ClusterRule, tuple[int, ...]],  # each with its heads
    *,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return what heads read, those of one rule together."""
    names = list(rules.values())
    cut = (split_heads(x, names) for x in (query, key, value))
    outputs = [
        read_by_clusters(q, k, v, rule, mask=mask, dropout_p=dropout_p, scale=scale)
        for rule, q, k, v in zip(rules, *cut, strict=True)
    ]
    return merge_heads(names, outputs)
