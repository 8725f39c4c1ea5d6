"""A as a sum of threshold graphs, one a voting key: no edge is ever stored."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from jat_graph.adjacency.pairs import PairAdjacency
from jat_graph.adjacency.scores import BLOCK
from jat_graph.kernels import rank_tokens, sum_joined
from jat_graph.operators.base import KEPT_KEYS, Operator, recompute


class ThresholdOperator(Operator):
    """An operator that holds queries, keys and who votes, and multiplies by running sums.

    For one key the joined tokens are the first or last ones in the order of their scores. So A x is
    a sort and a running sum a key: O(U · L · D) time, and memory for the order of the tokens. A is
    symmetric, so the backward pass is the forward pass.

    Args:
        pairs: Who votes on which pairs, by hard votes, under no mask but padding.

    Reference:
        Mahadev & Peled, *Threshold Graphs and Related Topics*, 1995.
    """

    def __init__(self, pairs: PairAdjacency) -> None:
        batch, heads, length = pairs.source.shape
        self.pairs, self.shape = pairs, torch.Size((batch, heads, length, length))
        self.dtype, self.device = pairs.source.dtype, pairs.source.device
        self._voters = pairs.voters().unsqueeze(-1)  # [B|1, H|1, 1, 1]
        self._nodes = None if pairs.nodes is None else pairs.nodes.to(self.dtype).unsqueeze(-1)
        with torch.no_grad():
            # The keys that would join a token with itself, [B, H, L, 1].
            self._self_votes = torch.zeros(*self.shape[:3], 1, dtype=self.dtype, device=self.device)
            for columns, limits in pairs.column_blocks(BLOCK):
                votes = columns * columns > limits.unsqueeze(-1)
                self._self_votes += votes.sum(2).unsqueeze(-1)
            self._kept = rank_tokens(*pairs.columns()) if pairs.num_keys <= KEPT_KEYS else None

    @property
    def degree(self) -> Tensor:
        with torch.no_grad():
            ones = torch.ones(*self.shape[:3], 1, dtype=self.dtype, device=self.device)
            total = self._sum_joined(ones)
            return ((total - self._self_votes) / self._voters).squeeze(-1)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        # Votes for oneself are taken out of the diagonal, not subtracted from a sum.
        own = diagonal - self._self_votes / self._voters
        if self._kept is None:
            joined = recompute(lambda y, _: self._sum_joined(y), x, False)  # A is symmetric
        else:
            joined = self._sum_joined(x)
        return (own * x).addcdiv_(joined, self._voters)

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        return self._matmul(x, diagonal)

    def _sum_joined(self, x: Tensor) -> Tensor:
        """Return Σ_j Σ_k 1[j joins (i, k)] x_k over nodes k, the token itself included."""
        if self._nodes is not None:
            x = x * self._nodes
        if self._kept is not None:
            return sum_joined(x, self._kept)
        blocks = self.pairs.column_blocks(BLOCK)
        return reduce(torch.add, (sum_joined(x, rank_tokens(*block)) for block in blocks))
