"""Count votes in plain torch, one key at a time on tiles of pairs."""

from __future__ import annotations

import torch
from torch import Tensor

# Pairs that are counted at a time: 4 MiB in float32.
TILE = 2**20


def count(
    columns: Tensor,  # Key scores [G, U, L]
    limits: Tensor,  # The largest product that is no vote, [G, U]
    same_sign_only: bool,
    start: int,
    stop: int,
) -> Tensor:  # [G, stop - start, L]
    """Count, for queries i from ``start`` to ``stop``, the keys that vote for (i, k)."""
    graphs, _, length = columns.shape
    counts = columns.new_zeros(graphs, stop - start, length)
    step = max(1, TILE // max(1, counts[:1].numel()))
    height = max(1, TILE // length)
    for graph in range(0, graphs, step):
        block = slice(graph, graph + step)
        for row in range(start, stop, height):
            rows = slice(row, min(row + height, stop))
            tile = counts[block, rows.start - start : rows.stop - start]
            _count_tile(tile, columns[block], limits[block], same_sign_only, rows)
    return counts


def _count_tile(
    counts: Tensor,  # [g, r, L], written
    columns: Tensor,  # [g, U, L]
    limits: Tensor,  # [g, U]
    same_sign_only: bool,
    rows: slice,
) -> None:
    # In place, votes as 0.0 and 1.0: a quarter of the time of the same thing through bools.
    votes = torch.empty_like(counts)
    for key in range(columns.size(1)):
        column = columns[:, key]
        left, right = column[:, rows, None], column[:, None, :]
        torch.mul(left, right, out=votes)
        votes.gt_(limits[:, key, None, None])
        if same_sign_only:
            votes.masked_fill_((left < 0) & (right < 0), 0.0)
        counts.add_(votes)
