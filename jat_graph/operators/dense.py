"""A as a matrix: the best choice for short inputs and every mask."""

from __future__ import annotations

from torch import Tensor

from jat_graph.kernels import count_votes
from jat_graph.operators.base import Operator
from jat_graph.operators.rows import clear_masked, soft_votes
from jat_graph.voting.ballot import Ballot


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
        """Count the votes for every pair.

        Args:
            ballot: Who votes on which pairs.

        Returns:
            A of Eq. 3.
        """
        voters = ballot.voters().unsqueeze(-1)
        if ballot.rule.soft_temperature is not None:
            return cls(soft_votes(ballot) / voters)
        # In place: another L×L of every head would cost as much as some of the counting.
        shares = count_votes(*ballot.columns()).div_(voters)
        clear_masked(shares, ballot.mask, slice(0, shares.size(-1)))
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
