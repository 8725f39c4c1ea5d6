"""Attention by clusters: exact scores where they matter, a cluster's row everywhere else."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from jat_graph.adjacency.clusters import (
    best_keys,
    cluster_queries,
    cluster_sizes,
    join_clusters,
    landmarks,
    number_of_clusters,
)
from jat_graph.attention.cluster_parts import Back, BestKeys, Kept, Read, Rest, Window, merge


@dataclass(frozen=True)
class ClusterRule:
    """How heads read by clusters; the fields are those of :class:`jat_graph.ClusterGraph`."""

    clusters: int | None = None
    keys: int = 32
    block: int = 64
    refine: int = 1
    propagate: bool = True


class ClusterHeads:
    """Some heads of one sequence in float32 or float64, their tokens in clusters."""

    def __init__(
        self,
        query: Tensor,  # [H, n, D]
        key: Tensor,  # [H, n, D]
        value: Tensor,  # [H, n, Dv]
        rule: ClusterRule,
        scale: float,
        joined: Tensor | None = None,  # [H, n], as the forward pass found it
    ) -> None:
        number = number_of_clusters(query.size(1), rule.clusters)
        self.joined = (
            join_clusters(query, key, number, rule.refine) if joined is None else joined
        )  # [H, n]
        self.query, self.rule, self.scale = query, rule, scale
        self.key = key - key.mean(1, keepdim=True)  # softmax does not see it
        self.queries = cluster_queries(query, self.joined, number, rule.refine)  # [H, m, D]
        rows = (self.queries * scale) @ self.key.mT
        best = best_keys(rows, rule.keys)
        exact = query, self.key, value
        self.exact: list[Window | BestKeys] = []
        if rule.block:
            self.exact.append(Window(*exact, rule.block, scale))
        if rule.keys:
            self.exact.append(BestKeys(*exact, self.joined, best, rule.block, scale))
        self.rest = Rest(rows, value, self.joined, best, rule.block) if rule.propagate else None

    def read(self, kept: Kept = None) -> Read:
        """Return the heads' outputs and the log-sum-exp of their scores."""
        parts = [part.read(kept) for part in self.exact]
        return merge(parts if self.rest is None else [*parts, self.rest.read(kept)])

    def gradients(self, back: Back, kept: Kept = None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients of queries, keys and values."""
        parts = [part.gradients(back, kept) for part in self.exact]
        query, key, value = (sum(x) for x in zip(*parts, strict=True)) if parts else (0, 0, 0)
        if self.rest is not None:
            by_row, by_value = self.rest.gradients(back, kept)
            by_row = by_row.mul_(self.scale)
            key = key + by_row.mT @ self.queries
            query, value = query + self._to_tokens(by_row @ self.key), value + by_value
        return query, key - key.mean(1, keepdim=True), value

    def _to_tokens(self, grad: Tensor) -> Tensor:  # [H, m, D] -> [H, n, D]
        number, index = grad.size(1), self.joined.unsqueeze(-1).expand_as(self.query)
        if self.rule.refine == 0:
            index = landmarks(self.query.size(1), number, grad.device)
            return torch.zeros_like(self.query).index_add_(1, index, grad)
        sizes = cluster_sizes(self.joined, number).clamp(min=1).unsqueeze(-1)
        return (grad / sizes).gather(1, index)
