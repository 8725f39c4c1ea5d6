"""The symmetric normalisation of Kipf and Welling around any operator."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.operators.base import Operator


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
        """Return the matrix, ``[B, H, L, L]``, in ``dtype``."""
        loops = torch.eye(self.shape[-1], dtype=self.dtype, device=self.device)
        return (self.base.to_dense() + loops) * self.scale.mT * self.scale
