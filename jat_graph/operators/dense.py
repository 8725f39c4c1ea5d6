"""A as a matrix: the best choice for short inputs and every mask."""

from __future__ import annotations

from torch import Tensor

from jat_graph.kernels import count_votes
from jat_graph.operators.base import Operator
from jat_graph.voting.ballot import Ballot
from jat_graph.voting.rule import sum_soft_votes


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
        if ballot.rule.soft_temperature is not None:
            votes = sum_soft_votes(ballot.rule, *ballot.key_scores())
            shares = votes / ballot.voters().unsqueeze(-1)
            return cls(shares.masked_fill(~ballot.edge_mask(), 0.0))
        # In place: another L×L of every head would cost as much as some of the counting.
        shares = count_votes(*ballot.columns()).div_(ballot.voters().unsqueeze(-1))
        shares.flatten(2)[..., :: shares.size(-1) + 1].zero_()  # the diagonal
        if ballot.mask.causal:
            shares.tril_()
        if ballot.mask.pairs is not None:
            shares.masked_fill_(~ballot.mask.pairs, 0.0)
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
