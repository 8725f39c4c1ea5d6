"""Blocks of 16 keys by the most that a key inside could score: Quest.

Reference:
    Tang et al., *Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference*, ICML 2024,
    which reads so while it generates; here the prompt is read so, too.
"""

from functools import lru_cache

import torch.nn.functional as F
from torch import Tensor

from examples.methods.rows import Rows, Text

BLOCK = 16


def bounds(rows: Rows) -> Tensor:
    """Read the blocks whose bounds of features allow the highest score."""
    low, high = find_bounds(rows.text)
    likely = rows.query.clamp(min=0) @ high.mT + rows.query.clamp(max=0) @ low.mT
    return rows.read(rows.choose(of_keys(likely, rows)))


@lru_cache(1)
def find_bounds(text: Text) -> tuple[Tensor, Tensor]:  # [heads, blocks, features]
    """Return the smallest and the largest features of each block."""
    parts = blocks(text.key)
    return parts.amin(2), parts.amax(2)


def blocks(key: Tensor) -> Tensor:  # [heads, keys, features] -> [heads, blocks, BLOCK, features]
    """Return the blocks of keys; the last one is filled up with the last key."""
    filled = F.pad(key.mT, (0, -key.size(1) % BLOCK), mode="replicate").mT
    return filled.unflatten(1, (-1, BLOCK))


def of_keys(likely: Tensor, rows: Rows) -> Tensor:  # [heads, queries, blocks] -> [..., keys]
    """Return of each key what its block has. A block with later keys is in the window anyway."""
    return likely.repeat_interleave(BLOCK, -1)[..., : rows.length]
