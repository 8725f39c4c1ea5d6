"""A in blocks of queries, counted again for each product: for causal masks on long inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from jat_graph.adjacency.pairs import PairAdjacency
from jat_graph.operators.base import Operator
from jat_graph.operators.rows import VoteRows


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
        self._votes = VoteRows(pairs)

    @property
    def degree(self) -> Tensor:
        """Row sums of the matrix itself, ``[B, H, L]``, in ``dtype``."""
        return torch.cat([weights.sum(-1) for _, weights in self.row_blocks()], dim=-1)

    def row_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield the matrix in blocks of rows, without the columns after the last row of a block.

        Yields:
            Which rows, and ``[B, H, rows, rows.stop]``.
        """
        voters = self.pairs.voters().unsqueeze(-1)
        for rows, votes in self._votes:
            yield rows, votes.div_(voters[:, :, rows])

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        product: Tensor = _BlockedProduct.apply(x, self, False)  # type: ignore[no-untyped-call]
        return product + diagonal * x

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        product: Tensor = _BlockedProduct.apply(x, self, True)  # type: ignore[no-untyped-call]
        return product + diagonal * x


class _BlockedProduct(torch.autograd.Function):
    """A x or its transpose; the backward pass is the other one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operator: BlockedOperator, transposed: bool) -> Tensor:
        ctx.operator, ctx.transposed = operator, transposed
        product = torch.zeros_like(x)
        for rows, weights in operator.row_blocks():
            if transposed:
                product[:, :, : rows.stop] += weights.mT @ x[:, :, rows]
            else:
                product[:, :, rows] = weights @ x[:, :, : rows.stop]
        return product

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = grads
        product: Tensor = _BlockedProduct.apply(  # type: ignore[no-untyped-call]
            grad, ctx.operator, not ctx.transposed
        )
        return product, None, None
