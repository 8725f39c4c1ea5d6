"""Count votes in Triton: tiles of pairs in registers, one triangle of them where all are wanted."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Queries and tokens of a tile. With two warps a thread owns one column of it, so that the scores of
# the queries come four at a time out of shared memory.
TILE, WARPS = 64, 2


def count(
    columns: Tensor,  # Key scores, NaN where masked, [G, U, L]
    limits: Tensor,  # The largest product that is no vote, [G, U]
    start: int,
    stop: int,
) -> Tensor:  # [G, stop - start, L]
    """Count, for queries i from ``start`` to ``stop`` and every k, the keys that vote for (i, k).

    Reference:
        Eq. 2 and 3 of the JAT paper.
    """
    graphs, num_keys, length = columns.shape
    counts = columns.new_empty(graphs, stop - start, length)
    symmetric = (start, stop) == (0, length)
    across, down = triton.cdiv(length, TILE), triton.cdiv(stop - start, TILE)
    tiles = across * (across + 1) // 2 if symmetric else down * across
    with torch.cuda.device_of(columns):
        _count_tile[(graphs * tiles,)](
            columns,
            limits,
            counts,
            num_keys,
            length,
            start,
            stop,
            tiles,
            SYMMETRIC=symmetric,
            SIZE=TILE,
            num_warps=WARPS,
        )
    return counts


@triton.jit
def _count_tile(
    columns: tl.tensor,
    limits: tl.tensor,
    counts: tl.tensor,
    num_keys: tl.tensor,
    length: tl.tensor,
    start: tl.tensor,
    stop: tl.tensor,
    tiles: tl.tensor,
    SYMMETRIC: tl.constexpr,
    SIZE: tl.constexpr,
) -> None:
    graph = (tl.program_id(0) // tiles).to(tl.int64)
    row, column = _place(tl.program_id(0) % tiles, tl.cdiv(length, SIZE), SYMMETRIC)
    i = start + row * SIZE + tl.arange(0, SIZE)
    k = column * SIZE + tl.arange(0, SIZE)
    columns += graph * num_keys * length
    limits += graph * num_keys
    # Counts in float32 are exact below 2^24 keys, and cheaper: one instruction makes a vote 1.0.
    total = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for _ in range(num_keys):
        left = tl.load(columns + i, mask=i < stop, other=0.0)[:, None]
        right = tl.load(columns + k, mask=k < length, other=0.0)[None, :]
        votes = left * right > tl.load(limits)
        total += votes.to(tl.float32)
        columns += length
        limits += 1
    counts += graph * (stop - start) * length
    result = total.to(counts.dtype.element_ty)
    here = counts + (i - start)[:, None].to(tl.int64) * length + k[None, :]
    tl.store(here, result, mask=(i < stop)[:, None] & (k < length)[None, :])
    if SYMMETRIC:
        if row != column:
            mirror = counts + k[:, None].to(tl.int64) * length + i[None, :]
            tl.store(mirror, tl.trans(result), mask=(k < length)[:, None] & (i < stop)[None, :])


@triton.jit
def _place(number: tl.tensor, across: tl.tensor, SYMMETRIC: tl.constexpr) -> tl.tensor:
    """Return row and column of a tile: of all, or of those on and below the diagonal.

    A long and a short row of the triangle make a line, and all lines are of one width.
    """
    if SYMMETRIC:
        odd = across % 2
        width = across + 1 - odd
        line = number // width
        step = number % width
        longer = across - line
        row = tl.where(step < longer, longer - 1, line - odd)
        column = tl.where(step < longer, step, step - longer)
    else:
        row = number // across
        column = number % across
    return row, column
