"""Ways to read a few keys in causal order: what a query chooses, it chooses from the keys before.

Each reads a token's own block and the block before it, and some keys further back. Methods are
plain formulas that go over all keys, a slab of queries at a time, so that long texts fit; what
choosing costs is not counted.

Reference:
    Xiao et al., *StreamingLLM*, ICLR 2024, for the first tokens; Jiang et al., *MInference*, 2024,
    for vertical lines; Yuan et al., *NSA*, and Lu et al., *MoBA*, 2025, for means of blocks; Tang
    et al., *Quest*, ICML 2024, for bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from examples.where_to_look import rows_of_block

FIRST, OF_BLOCK, SLAB = 4, 8, 256  # first tokens, keys of a block, queries at a time


@dataclass
class Slab:
    """Some queries, those before, all keys so far, ``[H, L, D]``, and the scores ``[H, rows, L]``.

    ``start`` is a multiple of ``block``, and so is the number of queries and keys.
    """

    query: Tensor
    key: Tensor
    start: int
    block: int
    scale: float

    def __post_init__(self) -> None:
        position = torch.arange(self.key.size(1), dtype=torch.int32)
        own = position[self.start :].unsqueeze(-1)
        self.back = own - position  # how far back each key is, [rows, L]
        self.far = own // self.block - position // self.block > 1
        self.scores = self.score(self.query[:, self.start :], self.back)

    def score(self, query: Tensor, back: Tensor) -> Tensor:
        """Return the scores of some queries; later keys have none."""
        return (query * self.scale @ self.key.mT).masked_fill_(back < 0, -torch.inf)


Likely: TypeAlias = Callable[[Slab, int], Tensor]  # how likely keys are to count, [H, rows, L]


def vertical_lines(slab: Slab, keys: int) -> Tensor:
    """Keys that the block before attended to most."""
    before = (torch.arange(slab.start, slab.key.size(1)) - slab.block).clamp(min=0)
    back = before.unsqueeze(-1) - torch.arange(slab.key.size(1))
    mass = slab.score(slab.query[:, before], back).softmax(-1).unflatten(1, (-1, slab.block))
    return mass.sum(2).repeat_interleave(slab.block, 1)


def means_of_blocks(slab: Slab, keys: int) -> Tensor:
    """Keys whose block has a mean of a high score."""
    size = min(OF_BLOCK, keys)
    means = slab.key.unflatten(1, (-1, size)).mean(2)
    return (slab.query[:, slab.start :] @ means.mT).repeat_interleave(size, -1)


def bounds_of_blocks(slab: Slab, keys: int) -> Tensor:
    """Keys whose block might hold one of a high score."""
    size, query = min(OF_BLOCK, keys), slab.query[:, slab.start :]
    low, high = torch.aminmax(slab.key.unflatten(1, (-1, size)), dim=2)
    bounds = query.clamp(min=0) @ high.mT + query.clamp(max=0) @ low.mT
    return bounds.repeat_interleave(size, -1)


def rows_of_clusters(slab: Slab, keys: int) -> Tensor:
    """Scores by the cluster that a token joins."""
    rows, block = torch.zeros_like(slab.scores), slab.block
    for start in range(max(slab.start, 2 * block), slab.key.size(1), block):
        own = slice(start - slab.start, start - slab.start + block)
        rows[:, own] = slab.scale * rows_of_block(slab.query, slab.key, start, block)
    return rows


LIKELY: dict[str, Likely] = {
    "vertical lines": vertical_lines,
    "means of blocks": means_of_blocks,
    "bounds of blocks": bounds_of_blocks,
    "oracle": lambda slab, keys: slab.scores,
    "clusters, nothing elsewhere": rows_of_clusters,
}


@dataclass
class FewKeys:
    """Attention ``[B, H, L, D]`` that reads a few keys by one of the methods.

    The windows of ``"window"`` and ``"window, first tokens"`` are as wide as what others read.
    """

    method: str
    keys: int
    block: int

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Return the heads' outputs."""
        q, k, v = (x.flatten(0, 1) for x in (query, key, value))
        step = max(1, SLAB // self.block) * self.block
        outputs = []
        for start in range(0, q.size(1), step):
            slab = Slab(q[:, : start + step], k[:, : start + step], start, self.block, scale)
            exact = self.choose(slab) & (slab.back >= 0)
            weights = slab.scores.masked_fill_(~exact, -torch.inf).softmax(-1)
            outputs.append(weights @ v[:, : start + step])
        return torch.cat(outputs, dim=1).view_as(query)

    def choose(self, slab: Slab) -> Tensor:  # bool, [H, rows, L]
        """Return which keys are read; later ones may be among them."""
        if self.method in LIKELY:
            likely = LIKELY[self.method](slab, self.keys).masked_fill(~slab.far, -torch.inf)
            best = likely.topk(min(self.keys, likely.size(-1)), sorted=False).indices
            chosen = torch.zeros_like(likely, dtype=torch.bool).scatter_(-1, best, True)
            return chosen & slab.far | ~slab.far
        first = FIRST if self.method == "window, first tokens" else 0
        width = self.block * 3 // 2 + self.keys - first
        return ((slab.back < width) | (torch.arange(slab.key.size(1)) < first)).expand_as(
            slab.scores
        )


def share_read(keys: int, block: int, length: int) -> float:
    """Return the share of pairs of a token and one before it, or itself, that are read."""
    position = torch.arange(length)
    near = position + 1 - (position // block * block - block).clamp(min=0)
    read = near + keys
    return float(read.minimum(position + 1).sum() / (position + 1).sum())


METHODS = ("window", "window, first tokens", *LIKELY)
