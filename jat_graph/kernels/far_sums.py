"""Sums by cluster over the blocks of a sequence that are far from a token's own, and back."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from jat_graph.kernels.compiling import Array, choose, loop


def gather_far(
    sums: Tensor,  # of each block, by cluster, [H, blocks, m, D]
    index: Tensor,  # cluster of each token, [H, blocks · block]
    before: int,  # blocks from a token's own to the nearest before it that counts
    after: int,  # and to the nearest after it
) -> Tensor:  # [H, blocks · block, D]
    """Return for each token what its cluster has in all blocks that are far; nothing cancels."""
    return choose(sums.device, gather_torch, gather_numba, gather_torch)(sums, index, before, after)


def spread_far(
    x: Tensor,  # [H, blocks · block, D]
    index: Tensor,  # cluster of each token, [H, blocks · block]
    shape: tuple[int, int],  # blocks and clusters
    before: int,
    after: int,
) -> Tensor:  # [H, blocks, m, D]
    """Return for each block and cluster the sum over the tokens that are far: the transpose."""
    spread = choose(x.device, spread_torch, spread_numba, spread_torch)
    return spread(x, index, shape, before, after)


# --- torch ---------------------------------------------------------------------------------------


def gather_torch(sums: Tensor, index: Tensor, before: int, after: int) -> Tensor:
    """Return what is far, by sums over blocks from both ends."""
    far = _far(sums, before, after)  # [H, blocks, m, D]
    index = index.view(*far.shape[:2], -1, 1).expand(-1, -1, -1, far.size(-1))
    return far.gather(2, index).flatten(1, 2)


def spread_torch(
    x: Tensor, index: Tensor, shape: tuple[int, int], before: int, after: int
) -> Tensor:
    """Return the sums over tokens, by sums over blocks from both ends."""
    x = x.view(len(x), shape[0], -1, x.size(-1))
    index = index.view(*x.shape[:3], 1).expand_as(x)
    return _far(x.new_zeros(len(x), *shape, x.size(-1)).scatter_add_(2, index, x), after, before)


def _far(x: Tensor, before: int, after: int) -> Tensor:  # along the blocks
    blocks = x.size(1)
    ahead = F.pad(x.cumsum(1), (0, 0, 0, 0, before, 0))[:, :blocks]
    return ahead + F.pad(x.flip(1).cumsum(1).flip(1), (0, 0, 0, 0, 0, after))[:, after:]


# --- numba: what runs stays in the cache ---------------------------------------------------------


def gather_numba(sums: Tensor, index: Tensor, before: int, after: int) -> Tensor:
    """Return what is far, by sums that run over blocks from both ends."""
    total = sums.new_zeros(*index.shape, sums.size(-1))
    _gather(sums.numpy(), index.numpy(), before, after, total.numpy())
    return total


def spread_numba(
    x: Tensor, index: Tensor, shape: tuple[int, int], before: int, after: int
) -> Tensor:
    """Return the sums over tokens, by sums that run over blocks from both ends."""
    sums = x.new_zeros(len(x), *shape, x.size(-1))
    _spread(x.numpy(), index.numpy(), before, after, sums.numpy())
    return sums


@loop()
def _gather(sums: Array, index: Array, before: int, after: int, total: Array) -> None:
    heads, blocks, _, _ = sums.shape
    block = index.shape[1] // blocks
    for head in range(heads):
        for side in range(2):
            running = np.zeros_like(sums[head, 0])
            for step in range(before if side == 0 else after, blocks):
                own = step if side == 0 else blocks - 1 - step
                far = own - before if side == 0 else own + after
                running += sums[head, far]
                for token in range(own * block, (own + 1) * block):
                    total[head, token] += running[index[head, token]]


@loop()
def _spread(x: Array, index: Array, before: int, after: int, sums: Array) -> None:
    heads, blocks, _, _ = sums.shape
    block = index.shape[1] // blocks
    for head in range(heads):
        for side in range(2):
            running = np.zeros_like(sums[head, 0])
            for step in range(before if side == 0 else after, blocks):
                # The farthest tokens come first: those at the end, then those at the beginning.
                own = blocks - 1 - (step - before) if side == 0 else step - after
                far = own - before if side == 0 else own + after
                for token in range(own * block, (own + 1) * block):
                    running[index[head, token]] += x[head, token]
                sums[head, far] += running
