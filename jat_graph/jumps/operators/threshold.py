"""A as a sum of threshold graphs, one a voting key, or in blocks: no edge is ever stored."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor

from jat_graph.core.compiling import steps
from jat_graph.jumps.adjacency.pairs import PairAdjacency
from jat_graph.jumps.adjacency.scores import BLOCK
from jat_graph.jumps.kernels import count_votes, rank_tokens, sum_joined
from jat_graph.jumps.operators.base import KEPT_KEYS, Operator, recompute


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
            for columns, limits in pairs.column_blocks():
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

    def _sum_joined(self, x: Tensor) -> Tensor:
        """Return Σ_j Σ_k 1[j joins (i, k)] x_k over nodes k, the token itself included."""
        if self._nodes is not None:
            x = x * self._nodes
        if self._kept is not None:
            return sum_joined(x, self._kept)
        blocks = self.pairs.column_blocks()
        return reduce(torch.add, (sum_joined(x, rank_tokens(*block)) for block in blocks))


class BlockedOperator(Operator):
    """An operator that holds queries, keys and who votes, and multiplies a block of queries a time.

    Under a causal mask the tokens that a query joins are no prefix of an order: of the strongest
    ones it sees the earlier ones only. So the votes of a block of queries are counted, multiplied
    and forgotten: O(U · L²) votes, and memory for one block.

    Args:
        pairs: Who votes on which pairs, by hard votes, under a causal mask and padding.
    """

    def __init__(self, pairs: PairAdjacency) -> None:
        batch, heads, length = pairs.source.shape
        self.pairs, self.shape = pairs, torch.Size((batch, heads, length, length))
        self.dtype, self.device = pairs.source.dtype, pairs.source.device
        with torch.no_grad():
            self._kept = pairs.columns() if pairs.num_keys <= KEPT_KEYS else None

    @property
    def degree(self) -> Tensor:
        return torch.cat([weights.sum(-1) for _, weights in self.row_blocks()], dim=-1)

    def vote_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield queries and their votes ``[B, H, rows, L]`` under any mask; a prefix if causal."""
        batch, heads, length, _ = self.shape
        for rows in steps(length, BLOCK, batch * heads * length):
            end = rows.stop if self.pairs.mask.causal else length
            with torch.no_grad():
                keys = self.pairs.column_blocks() if self._kept is None else [self._kept]
                counts = (count_votes(columns[..., :end], limits, rows) for columns, limits in keys)
                votes = reduce(torch.add, counts)
                self.pairs.clear_masked(votes, rows)
            yield rows, votes

    def row_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the same as shares of the voting keys, rows of A."""
        voters = self.pairs.voters().unsqueeze(-1)
        for rows, votes in self.vote_blocks():
            yield rows, votes.div_(voters[:, :, rows])

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        return recompute(self._product, x, False) + diagonal * x

    def _product(self, x: Tensor, transposed: bool) -> Tensor:
        product = torch.zeros_like(x)
        for rows, weights in self.row_blocks():
            if transposed:
                product[:, :, : rows.stop] += weights.mT @ x[:, :, rows]
            else:
                product[:, :, rows] = weights @ x[:, :, : rows.stop]
        return product
