"""Attention by clusters: exact scores where they matter, a cluster's row everywhere else."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.clusters import (
    best_keys,
    cluster_queries,
    cluster_sizes,
    join_clusters,
    landmarks,
    number_of_clusters,
)
from jat_graph.attention.cluster_parts import (
    Back,
    BestKeys,
    Gradients,
    Kept,
    Rest,
    Window,
    draw_mask,
    merge,
)
from jat_graph.graph_config import ClusterRule

# Tokens from which the default settings are faster than SDPA, without and with a backward pass.
DENSE_BELOW = (2048, 1280)


def shortest_length(rule: ClusterRule, backward: bool) -> int:
    """Return the length from which heads read by clusters; below it SDPA is faster, or the same."""
    wanted = DENSE_BELOW[backward] if rule.dense_below is None else rule.dense_below
    all_exact = max(rule.keys, 2 * rule.block) + 1
    return int(min(max(wanted, all_exact), 2**62))


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
        if joined is None:
            joined = join_clusters(query, key, number, rule.refine)
        self.query, self.joined, self.refine, self.scale = query, joined, rule.refine, scale
        self.key = key - key.mean(1, keepdim=True)  # softmax does not see it
        self.queries = cluster_queries(query, joined, number, rule.refine)  # [H, m, D]
        towards = self.queries * scale
        best, largest = best_keys(towards, self.key, rule.keys)
        exact = query, self.key, value
        self.exact: list[Window | BestKeys] = []
        if rule.block:
            self.exact.append(Window(*exact, rule.block, scale))
        if rule.keys:
            self.exact.append(BestKeys(*exact, joined, best, rule.block, scale))
        self.rest: Rest | None = None
        if rule.propagate:
            self.rest = Rest(towards, self.key, value, joined, best, largest, rule.block)

    def read(self, kept: Kept = None) -> tuple[Tensor, Tensor]:
        """Return the heads' outputs and the log-sum-exp of their scores."""
        parts = [part.read(kept) for part in self.exact]
        return merge(parts if self.rest is None else [*parts, self.rest.read(kept)])

    def gradients(self, back: Back, kept: Kept = None) -> Gradients:
        """Return the gradients of queries, keys and values."""
        parts = [part.gradients(back, kept) for part in self.exact]
        if self.rest is not None:
            by_query, by_key, by_value = self.rest.gradients(back, kept)
            parts.append((self._to_tokens(by_query.mul_(self.scale)), by_key, by_value))
        query, key, value = parts[0]
        for part in parts[1:]:
            query, key, value = query.add_(part[0]), key.add_(part[1]), value.add_(part[2])
        return query, key - key.mean(1, keepdim=True), value

    def _to_tokens(self, grad: Tensor) -> Tensor:  # [H, m, D] -> [H, n, D]
        number = grad.size(1)
        if self.refine == 0:
            index = landmarks(self.query.size(1), number, grad.device)
            return torch.zeros_like(self.query).index_add_(1, index, grad)
        sizes = cluster_sizes(self.joined, number).clamp(min=1).unsqueeze(-1)
        return (grad / sizes).gather(1, self.joined.unsqueeze(-1).expand_as(self.query))


class DenseHeads:
    """Some heads of one sequence that is too short for clusters, or has too few keys."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
        self.heads, self.scale = list(zip(query, key, value, strict=True)), scale

    def read(self, kept: Kept = None) -> tuple[Tensor, Tensor]:
        """Return the heads' outputs, without dropout those of SDPA, and no log-sum-exp."""
        outputs = []
        for query, key, value in self.heads:
            if kept is None:
                head = query[None, None], key[None, None], value[None, None]
                output = F.scaled_dot_product_attention(*head, scale=self.scale)
                outputs.append(output[0, 0])
            else:
                weights = (query @ key.mT * self.scale).softmax(-1)
                outputs.append((weights * draw_mask(weights, kept)) @ value)
        return torch.stack(outputs), torch.zeros(())

    def gradients(self, back: Back, kept: Kept = None) -> Gradients:
        """Return the gradients of queries, keys and values, head by head."""
        found = []
        for (query, key, value), grad, delta in zip(self.heads, back.grad, back.delta, strict=True):
            weights = (query @ key.mT * self.scale).softmax(-1)
            mask, by_weight = draw_mask(weights, kept), grad @ value.mT
            by_value = (weights if mask is None else weights * mask).mT @ grad
            by_weight = by_weight if mask is None else by_weight * mask
            by_score = (by_weight - delta.unsqueeze(-1)) * weights * self.scale
            found.append((by_score @ key, by_score.mT @ query, by_value))
        by_query, by_key, by_value = (torch.stack(part) for part in zip(*found, strict=True))
        return by_query, by_key, by_value
