"""Attention by clusters: exact scores where they matter, a cluster's row everywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.clusters import best_keys, choose_clusters, cluster_sizes
from jat_graph.attention.cluster_keys import BestKeys, GlobalKeys, NearKeys
from jat_graph.attention.cluster_parts import Dropout, Gradients, Sums, Tokens, draw_mask, masked
from jat_graph.attention.cluster_rest import Rest
from jat_graph.graph_config import ClusterRule

Parts: TypeAlias = tuple[Tensor, Tensor, Tensor]
Pair: TypeAlias = tuple[Tensor, Tensor]

ROWS = 256  # that dense heads take at a time


class ClusterHeads:
    """Some heads of one sequence in float32 or float64, their tokens in clusters."""

    def __init__(
        self,
        query: Tensor,  # [H, n, D]
        key: Tensor,  # and those of g global tokens, [H, n + g, D]
        value: Tensor,  # [H, n + g, Dv]
        rule: ClusterRule,
        scale: float,
        joined: Tensor | None = None,  # [H, n], as the forward pass found it
        highest: Pair | None = None,  # best keys and the highest score of others, as well
    ) -> None:
        self.tokens = tokens = Tokens(query, key, value, rule.block)
        query, key = tokens.of_tokens(tokens.query), tokens.of_tokens(tokens.key)
        mean = key.mean(1, keepdim=True)
        for keys in (key, tokens.of_global(tokens.key)):
            keys -= mean  # softmax does not see it
        joined, towards = choose_clusters(query, key, rule.clusters, joined)
        towards = towards * scale  # [H, m, D]
        self.query, self.joined, self.scale = query, joined, scale
        self.highest = highest or best_keys(towards, key, rule.keys or 0)
        best, largest = self.highest
        self.rest = Rest(tokens, towards, joined, best, largest) if rule.propagate else None
        self.exact: list[NearKeys | BestKeys] = [NearKeys(tokens, scale)] if rule.block else []
        if rule.keys:
            self.exact.append(BestKeys(tokens, joined, best, scale))
        if tokens.num_global:
            self.exact.append(GlobalKeys(tokens, scale))

    def read(self, kept: Dropout = None) -> Parts:
        """Return the heads' outputs, and the shift and the sum of their weights, [H, n] each."""
        sums = Sums.nothing(self.tokens) if self.rest is None else self.rest.read(kept)
        for part in self.exact:
            part.read(sums, kept)
        total, shift = map(self.tokens.of_tokens, sums)
        weight = total[..., -1:]
        return total[..., :-1] / weight, shift.squeeze(-1), weight.squeeze(-1)

    def gradients(self, grad: Tensor, output: Tensor, sums: Pair, kept: Dropout = None) -> Parts:
        """Return the gradients of queries, keys and values."""
        back = Gradients(self.tokens, grad, output, *sums)
        by_queries = None if self.rest is None else self.rest.differentiate(back, kept)
        for part in self.exact:
            part.differentiate(back, kept)
        tokens, query = self.tokens, self.tokens.of_tokens(back.query)
        if by_queries is not None:
            query += self._to_tokens(by_queries.mul_(self.scale))
        key, value = tokens.of_all(back.key), tokens.of_all(back.value)
        key[:, : tokens.length] -= key.sum(1, keepdim=True) / tokens.length
        return query, key, value[..., :-1]

    def _to_tokens(self, grad: Tensor) -> Tensor:  # [H, m, D] -> [H, n, D]
        number = grad.size(1)
        sizes = cluster_sizes(self.joined, number).clamp(min=1).unsqueeze(-1)
        return (grad / sizes).gather(1, self.joined.unsqueeze(-1).expand_as(self.query))


class DenseHeads:
    """Some heads of one sequence that is too short for clusters, or of its global tokens."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
        self.parts, self.scale = (query, key, value), scale

    def _rows(self) -> Iterator[tuple[int, slice]]:
        """Yield some queries of a head."""
        heads, length, _ = self.parts[0].shape
        for head in range(heads):
            for start in range(0, length, ROWS):
                yield head, slice(start, min(start + ROWS, length))

    def _weights(self, head: int, rows: slice) -> Tensor:
        query, key, _ = self.parts
        return (query[head, rows] @ key[head].mT * self.scale).softmax(-1)

    def read(self, kept: Dropout = None) -> Parts:
        """Return the heads' outputs, without dropout those of SDPA, and nothing of weights."""
        query, _, value = self.parts
        nothing = torch.zeros(())
        if kept is None:
            query, key, value = (x.unsqueeze(0) for x in self.parts)
            output = F.scaled_dot_product_attention(query, key, value, scale=self.scale)
            return output[0], nothing, nothing
        output = value.new_empty(*query.shape[:2], value.size(-1))
        for head, rows in self._rows():
            weights = self._weights(head, rows)
            output[head, rows] = masked(weights, draw_mask(weights, kept)) @ value[head]
        return output, nothing, nothing

    def gradients(self, grad: Tensor, output: Tensor, sums: Pair, kept: Dropout = None) -> Parts:
        """Return the gradients of queries, keys and values."""
        (query, key, value), deltas = self.parts, (grad * output).sum(-1, keepdim=True)
        by_query, by_key, by_value = (torch.zeros_like(x) for x in self.parts)
        for head, rows in self._rows():
            weights, own = self._weights(head, rows), grad[head, rows]
            mask = draw_mask(weights, kept)
            by_score = masked(own @ value[head].mT, mask).sub_(deltas[head, rows])
            by_score.mul_(weights).mul_(self.scale)
            by_query[head, rows] = by_score @ key[head]
            by_key[head] += by_score.mT @ query[head, rows]
            by_value[head] += masked(weights, mask).mT @ own
        return by_query, by_key, by_value
