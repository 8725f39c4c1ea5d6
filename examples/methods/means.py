"""Blocks of 16 keys by the score of their mean, as MoBA and the selection of NSA have it.

Reference:
    Lu et al., *MoBA: Mixture of Block Attention for Long-Context LLMs*, 2025, whose models are
    trained on; here they are not.
"""

from functools import lru_cache

from torch import Tensor

from examples.methods.bounds import blocks, of_keys
from examples.methods.rows import Rows, Text


def means(rows: Rows) -> Tensor:
    """Read the blocks whose means score highest."""
    likely = rows.query @ find_means(rows.text).mT
    return rows.read(rows.choose(of_keys(likely, rows)))


@lru_cache(1)
def find_means(text: Text) -> Tensor:  # [heads, blocks, features]
    """Return the mean key of each block."""
    return blocks(text.key).mean(2)
