"""Vertical and slash lines that the last 64 queries of a prompt attend to: MInference.

Reference:
    Jiang et al., *MInference 1.0: Accelerating Pre-filling for Long-Context LLMs via Dynamic
    Sparse Attention*, NeurIPS 2024, its vertical-slash pattern for every head, half of the keys on
    lines of each kind; new tokens read all keys, as there.
"""

from functools import lru_cache

import torch
from torch import Tensor

from examples.methods.rows import FIRST, NEAR, Rows, Text

LAST = 64


def lines(rows: Rows) -> Tensor:
    """Read some columns and some diagonals, the same for all tokens of a prompt."""
    if rows.text.query.size(1) == 1:
        return rows.read(rows.allowed)
    vertical, slash = draw(rows.text, rows.budget // 2)
    exact = vertical[:, None, : rows.length] | slash[:, rows.distance.abs()]
    return rows.read(exact & rows.allowed)


@lru_cache(1)
def draw(text: Text, number: int) -> tuple[Tensor, Tensor]:  # bool, [heads, keys] both
    """Return by key and by distance which lines have most of the attention of the last queries."""
    last = Text(text.query[:, -LAST:], text.key, text.scale, text.causal)
    (rows,) = last.split(LAST, number)
    attention = rows.read(rows.allowed)
    vertical = attention.sum(1)
    where = rows.distance.abs().expand_as(attention).flatten(1)
    slash = torch.zeros_like(vertical).scatter_add_(-1, where, attention.flatten(1))
    vertical[:, :FIRST] = torch.inf
    slash[:, :NEAR] = torch.inf
    # Without causal order a token has two keys at a distance.
    return likeliest(vertical, number), likeliest(slash, number if text.causal else number // 2)


def likeliest(likely: Tensor, number: int) -> Tensor:
    """Return which are the likeliest."""
    found = likely.topk(min(number, likely.size(-1))).indices
    return torch.zeros_like(likely, dtype=torch.bool).scatter_(-1, found, True)
