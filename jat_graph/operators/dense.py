"""A as a matrix: the best choice for short inputs and every mask."""

from __future__ import annotations

from torch import Tensor

from jat_graph.ballot import Ballot
from jat_graph.operators.base import Operator
from jat_graph.votes import count_votes


class DenseOperator(Operator):
    """An operator that holds its matrix.

    Args:
        adjacency: ``[B, H, L, L]``, float32 or float64.
    """

    def __init__(self, adjacency: Tensor) -> None:
        self.adjacency = adjacency
        self.shape, self.dtype, self.device = adjacency.shape, adjacency.dtype, adjacency.device

    @classmethod
    def from_ballot(cls, ballot: Ballot) -> DenseOperator:
        """Count the votes for every pair, in blocks of keys.

        Args:
            ballot: Who votes on which pairs.

        Returns:
            A of Eq. 3.
        """
        scores, norms = ballot.key_scores()
        counts = count_votes(ballot.rule, scores, norms)
        shares = counts / ballot.voters().unsqueeze(-1)
        return cls(shares.masked_fill(~ballot.edge_mask(), 0.0))

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        return self.adjacency @ x + diagonal * x

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        return self.adjacency.transpose(-1, -2) @ x + diagonal * x

    def to_dense(self) -> Tensor:
        """Return the matrix, ``[B, H, L, L]``, in ``dtype``."""
        return self.adjacency
