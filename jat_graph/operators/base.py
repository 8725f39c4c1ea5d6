"""What every operator can do; a new structure writes two methods. A as a matrix, powers, and Â."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from jat_graph.adjacency.pairs import PairAdjacency
from jat_graph.adjacency.scores import full_precision
from jat_graph.kernels import count_votes

# Keys up to which what is known of them is kept between products; beyond, it is made again.
KEPT_KEYS = 256


class Operator(ABC):
    """A square matrix per sequence and head that multiplies features.

    A subclass gives ``shape``, ``dtype``, ``device``, ``_matmul`` and ``_rmatmul``; everything else
    is here. Sums accumulate in ``dtype``; results have the dtype of the features.
    """

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    first_row: int = 0  # of the matrix; other processes may have those before it

    @abstractmethod
    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        """Return (A + diagonal · I) x, in ``self.dtype``."""

    @abstractmethod
    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        """Return (Aᵀ + diagonal · I) x, in ``self.dtype``."""

    def matmul(self, x: Tensor, diagonal: float = 0.0) -> Tensor:
        """Return (A + diagonal · I) x.

        Args:
            x: Features ``[B, H, L, D]``.
            diagonal: Weight of the self-loops to add. (default: 0.0)

        Returns:
            The product, in the dtype of ``x``.

        Raises:
            ValueError: If ``x`` does not fit.

        Shapes:
            - **output:** ``[B, H, L, D]``
        """
        self._check(x)
        with full_precision(self.device):
            return self._matmul(x.to(self.dtype), diagonal).to(x.dtype)

    def rmatmul(self, x: Tensor, diagonal: float = 0.0) -> Tensor:
        """Return (Aᵀ + diagonal · I) x, of what :meth:`matmul` takes."""
        self._check(x)
        with full_precision(self.device):
            return self._rmatmul(x.to(self.dtype), diagonal).to(x.dtype)

    @property
    def degree(self) -> Tensor:
        """Row sums of the matrix itself, ``[B, H, L]``, in ``dtype``."""
        ones = torch.ones(*self.shape[:3], 1, dtype=self.dtype, device=self.device)
        return self.matmul(ones).squeeze(-1)

    def power(self, exponent: int) -> PowerOperator:
        """Return the operator that multiplies ``exponent`` times; for 0 it is the identity."""
        return PowerOperator(self, exponent)

    def to_dense(self) -> Tensor:
        """Return the matrix, ``[B, H, L, L]``, in ``dtype``; of a shard of a sequence its rows."""
        rows = slice(self.first_row, self.first_row + self.shape[-2])
        eye = torch.eye(self.shape[-1], dtype=self.dtype, device=self.device)
        return self.matmul(eye[rows].expand(self.shape))

    def to_edge_index(self) -> tuple[Tensor, Tensor]:
        """Return the non-zero entries as one PyG graph over all sequences and heads.

        Returns:
            ``edge_index`` ``[2, E]`` with rows (source k, target i), node number
            ``(b · H + h) · L + position``; and ``edge_weight`` ``[E]``.
        """
        matrix = self.to_dense().flatten(0, 1)
        graph, target, source = matrix.nonzero(as_tuple=True)
        offset = graph * self.shape[-1]
        weight = matrix[graph, target, source]
        target = target + self.first_row
        return torch.stack([offset + source, offset + target]), weight

    def _check(self, x: Tensor) -> None:
        if x.dim() != 4 or x.shape[:3] != self.shape[:3]:
            wanted = ", ".join(str(size) for size in self.shape[:3])
            raise ValueError(f"x must be [{wanted}, D], got {list(x.shape)}")


class DenseOperator(Operator):
    """An operator that holds its matrix: best for short inputs, and for every mask.

    Args:
        adjacency: ``[B, H, L, L]``, float32 or float64.
    """

    def __init__(self, adjacency: Tensor) -> None:
        self.adjacency = adjacency
        self.shape, self.dtype, self.device = adjacency.shape, adjacency.dtype, adjacency.device

    @classmethod
    def of_pairs(cls, pairs: PairAdjacency) -> DenseOperator:
        """Count the votes for every pair: A of Eq. 3."""
        voters = pairs.voters().unsqueeze(-1)
        if pairs.rule.soft_temperature is not None:
            return cls(pairs.soft_votes() / voters)
        # In place: another L×L of every head would cost as much as some of the counting.
        shares = count_votes(*pairs.columns()).div_(voters)
        pairs.clear_masked(shares, slice(0, shares.size(-1)))
        return cls(shares)

    @property
    def degree(self) -> Tensor:
        return self.adjacency.sum(-1)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        return self.adjacency @ x + diagonal * x

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        return self.adjacency.transpose(-1, -2) @ x + diagonal * x

    def to_dense(self) -> Tensor:
        return self.adjacency


class PowerOperator(Operator):
    """The power of an operator.

    Args:
        base: The operator.
        exponent: How often it multiplies, at least 0.

    Raises:
        ValueError: If the exponent is negative.

    Reference:
        Abu-El-Haija et al., *MixHop*, ICML 2019.
    """

    def __init__(self, base: Operator, exponent: int) -> None:
        if exponent < 0:
            raise ValueError(f"exponent must be at least 0, got {exponent}")
        self.base, self.exponent = base, exponent
        self.shape, self.dtype, self.device = base.shape, base.dtype, base.device
        self.first_row = base.first_row

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        y = x
        for _ in range(self.exponent):
            y = self.base.matmul(y)
        return y + diagonal * x

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        y = x
        for _ in range(self.exponent):
            y = self.base.rmatmul(y)
        return y + diagonal * x


class NormalizedOperator(Operator):
    r"""Â = D̃^-½ (A + I) D̃^-½, D̃ the row sums of A + I.

    Args:
        base: A, ``[B, H, L, L]``, without self-loops.

    Reference:
        Eq. 4 of the JAT paper; Kipf & Welling, *Semi-Supervised Classification with Graph
        Convolutional Networks*, ICLR 2017, Eq. 2.
    """

    def __init__(self, base: Operator) -> None:
        self.base = base
        self.shape, self.dtype, self.device = base.shape, base.dtype, base.device
        self.scale = (base.degree + 1).rsqrt().unsqueeze(-1)  # [B, H, L, 1]

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        y = self.base.matmul(self.scale * x, diagonal=1.0).mul_(self.scale)
        return y if diagonal == 0 else y + diagonal * x

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        y = self.base.rmatmul(self.scale * x, diagonal=1.0).mul_(self.scale)
        return y if diagonal == 0 else y + diagonal * x

    def to_dense(self) -> Tensor:
        loops = torch.eye(self.shape[-1], dtype=self.dtype, device=self.device)
        return (self.base.to_dense() + loops) * self.scale.mT * self.scale


Product = Callable[[Tensor, bool], Tensor]  # of features, with a matrix or with its transpose


def recompute(product: Product, x: Tensor, transposed: bool) -> Tensor:
    """Multiply, and keep nothing for the backward pass but how to multiply by the transpose."""
    result: Tensor = _Recomputed.apply(x, product, transposed)  # type: ignore[no-untyped-call]
    return result


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, product: Product, transposed: bool) -> Tensor:
        ctx.product, ctx.transposed = product, transposed
        return product(x, transposed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return recompute(ctx.product, grads[0], not ctx.transposed), None, None
