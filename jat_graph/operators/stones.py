"""P, a walk from a token to a stone and on to another token: two skinny products, never L×L."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.operators.base import Operator

SHORTEST, LONGEST = 32, 1024  # tokens that a causal product takes at a time


class StoneOperator(Operator):
    r"""P = (D + εI)⁻¹ (B S⁻¹ Bᵀ + εI), D and S the row and column sums of the links B.

    A token on no stone keeps its own features. In causal order a stone knows the tokens so far:
    its sum and its size are running ones.

    Args:
        links: B ``[B, H, L, U]``, at least 0, float32 or float64.
        self_weight: ε, at least 0.
        causal: Whether a token walks to itself and those before it only. (default: False)
    """

    def __init__(self, links: Tensor, self_weight: float, causal: bool = False) -> None:
        batch, heads, length, _ = links.shape
        self.links, self.causal = links, causal
        self.shape = torch.Size((batch, heads, length, length))
        self.dtype, self.device = links.dtype, links.device
        sizes = links.cumsum(-2) if causal else links.sum(-2, keepdim=True)
        # Where nobody stands there is nothing to share.
        self.shares = links / sizes.masked_fill(sizes == 0, 1.0)  # B S⁻¹
        degree = links.sum(-1, keepdim=True)  # [B, H, L, 1]
        self.loops = (degree == 0).to(self.dtype) if self_weight == 0 else self_weight
        self.weight = 1 / (degree + self.loops)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        walked = self._walk(self.shares, self.links, x)
        return (walked + self.loops * x) * self.weight + diagonal * x

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        weighted = x * self.weight
        if self.causal:  # the other way, time runs backward
            parts = (y.flip(-2) for y in (self.links, self.shares, weighted))
            walked = running_product(*parts).flip(-2)
        else:
            walked = self._walk(self.links, self.shares, weighted)
        return walked + self.loops * weighted + diagonal * x

    def _walk(self, left: Tensor, right: Tensor, x: Tensor) -> Tensor:
        return running_product(left, right, x) if self.causal else left @ (right.mT @ x)


def running_product(
    left: Tensor,  # [B, H, L, U]
    right: Tensor,  # [B, H, L, U]
    x: Tensor,  # [B, H, L, D]
) -> Tensor:  # [B, H, L, D]
    """Return Σ_{k ≤ i} (left_i · right_k) x_k for each i, a block of tokens at a time.

    Within a block by its square of weights; what came before it stands in one sum for each stone.
    Blocks are as long as keeps both small.
    """
    length, stones, width = left.size(-2), left.size(-1), x.size(-1)
    size = 2 ** round(math.log2(math.sqrt(2 * stones * width)))
    size = min(length, max(SHORTEST, min(size, LONGEST)))
    blocks = -(-length // size)
    left, right, x = (_in_blocks(y, blocks, size) for y in (left, right, x))
    product = (left @ right.mT).tril() @ x
    if blocks > 1:
        sums = (right[:, :, :-1].mT @ x[:, :, :-1]).cumsum(2)  # [B, H, blocks - 1, U, D]
        product = torch.cat([product[:, :, :1], product[:, :, 1:] + left[:, :, 1:] @ sums], dim=2)
    return product.flatten(2, 3)[:, :, :length]


def _in_blocks(x: Tensor, blocks: int, size: int) -> Tensor:  # [B, H, blocks, size, D]
    padded = F.pad(x, (0, 0, 0, blocks * size - x.size(-2)))
    return padded.view(*x.shape[:2], blocks, size, x.size(-1))
