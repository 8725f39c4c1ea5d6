"""Count votes in plain torch, one key at a time on tiles of pairs."""

from __future__ import annotations

import torch
from torch import Tensor

# Pairs that are counted at a time: 4 MiB in float32.
TILE = 2**20


def count(
    columns: Tensor,  # Key scores, NaN where masked, [G, U, L]
    limits: Tensor,  # The largest product that is no vote, [G, U]
    start: int,
    stop: int,
) -> Tensor:  # [G, stop - start, L]
    """Count, for queries i from ``start`` to ``stop`` and all k, the keys that vote for (i, k)."""
    graphs, _, length = columns.shape
    counts = columns.new_zeros(graphs, stop - start, length)
    step = max(1, TILE // max(1, counts[:1].numel()))
    height = max(1, TILE // length)
    for graph in range(0, graphs, step):
        block = slice(graph, graph + step)
        for row in range(start, stop, height):
            rows = slice(row, min(row + height, stop))
            tile = counts[block, rows.start - start : rows.stop - start]
            _count_tile(tile, columns[block], limits[block], rows)
    return counts


def _count_tile(
    counts: Tensor,  # [g, r, L], written
    columns: Tensor,  # [g, U, L]
    limits: Tensor,  # [g, U]
    rows: slice,
) -> None:
    # In place, votes as 0.0 and 1.0: a quarter of the time of the same thing through bools.
    votes = torch.empty_like(counts)
    for key in range(columns.size(1)):
        column = columns[:, key]
        torch.mul(column[:, rows, None], column[:, None, :], out=votes)
        votes.gt_(limits[:, key, None, None])
        counts.add_(votes)
