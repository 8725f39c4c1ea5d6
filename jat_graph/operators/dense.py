"""A as a matrix: the best choice for short inputs and every mask."""

from __future__ import annotations

from torch import Tensor

from jat_graph.adjacency.pairs import PairAdjacency
from jat_graph.adjacency.votes import sum_soft_votes
from jat_graph.kernels import count_votes
from jat_graph.operators.base import Operator


class DenseOperator(Operator):
    """An operator that holds its matrix.

    Args:
        adjacency: ``[B, H, L, L]``, float32 or float64.
    """

    def __init__(self, adjacency: Tensor) -> None:
        self.adjacency = adjacency
        self.shape, self.dtype, self.device = adjacency.shape, adjacency.dtype, adjacency.device

    @classmethod
    def of_pairs(cls, pairs: PairAdjacency) -> DenseOperator:
        """Count the votes for every pair.

        Args:
            pairs: Who votes on which pairs.

        Returns:
            A of Eq. 3.
        """
        voters = pairs.voters().unsqueeze(-1)
        if pairs.rule.soft_temperature is not None:
            votes = sum_soft_votes(pairs.rule, *pairs.key_scores())
            return cls(votes.masked_fill(~pairs.edge_mask(), 0.0) / voters)
        # In place: another L×L of every head would cost as much as some of the counting.
        shares = count_votes(*pairs.columns()).div_(voters)
        pairs.clear_masked(shares, slice(0, shares.size(-1)))
        return cls(shares)

    @property
    def degree(self) -> Tensor:
        """Row sums of the matrix itself, ``[B, H, L]``, in ``dtype``."""
        return self.adjacency.sum(-1)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        return self.adjacency @ x + diagonal * x

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        return self.adjacency.transpose(-1, -2) @ x + diagonal * x

    def to_dense(self) -> Tensor:
        """Return the matrix, ``[B, H, L, L]``, in ``dtype``."""
        return self.adjacency
