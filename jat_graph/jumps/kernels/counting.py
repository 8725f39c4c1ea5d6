"""Count the votes for every pair of queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from jat_graph.core.compiling import Array, ceil_div, choose, loop, triton_kernel

if TYPE_CHECKING:
    import numba
    import triton.language as tl


def count_votes(columns: Tensor, limits: Tensor, rows: slice | None = None) -> Tensor:
    """Count, for each pair of queries, the keys that vote for it.

    No L×L×L tensor is ever stored: the largest one is the result. No gradient flows through it.

    Args:
        columns: Key scores, ``[B, H, U, L]``; NaN, which never votes, where masked.
        limits: The largest product that is no vote, ``[B, H, U]``.
        rows: The queries i to count for. (default: all)

    Returns:
        Counts in the dtype of ``columns``; the diagonal counts squares above the limits.

    Shapes:
        - **output:** ``[B, H, rows, L]``

    Reference:
        Eq. 2 and 3 of the JAT paper.
    """
    length = columns.size(-1)
    start = 0 if rows is None or rows.start is None else rows.start
    stop = length if rows is None or rows.stop is None else rows.stop
    counts: Tensor = _count_votes(columns.detach(), limits.detach(), start, max(start, stop))
    return counts


@torch.library.custom_op("jat_graph::count_votes", mutates_args=())
def _count_votes(columns: Tensor, limits: Tensor, start: int, stop: int) -> Tensor:
    """Count; an opaque operator, so that torch.compile does not trace the loops."""
    batch, heads, _, length = columns.shape
    scores, limit = (tensor.flatten(0, 1).contiguous() for tensor in (columns, limits))
    count = choose(columns.device, count_torch, count_numba, count_triton, slow=True)
    return count(scores, limit, start, stop).view(batch, heads, -1, length)


@_count_votes.register_fake
def _(columns: Tensor, limits: Tensor, start: int, stop: int) -> Tensor:
    batch, heads, _, length = columns.shape
    return columns.new_empty(batch, heads, stop - start, length)


PAIRS = 2**20  # that are counted at a time: 4 MiB in float32


def count_torch(columns: Tensor, limits: Tensor, start: int, stop: int) -> Tensor:
    """Count key by key, on tiles of pairs: [G, U, L], [G, U] -> [G, stop - start, L]."""
    graphs, num_keys, length = columns.shape
    counts = columns.new_zeros(graphs, stop - start, length)
    step = max(1, PAIRS // max(1, counts[:1].numel()))
    height = max(1, PAIRS // length)
    for graph in range(0, graphs, step):
        block = slice(graph, graph + step)
        for row in range(start, stop, height):
            end = min(row + height, stop)
            tile = counts[block, row - start : end - start]
            # In place, votes as 0.0 and 1.0: a quarter of the time of the same through bools.
            votes = torch.empty_like(tile)
            for key in range(num_keys):
                column = columns[block, key]
                torch.mul(column[:, row:end, None], column[:, None, :], out=votes)
                tile.add_(votes.gt_(limits[block, key, None, None]))
    return counts


# Queries i whose counts are kept together: each score of a k that is read serves all of them.
ROWS = 4
# Tokens k at a time: four rows of counters fit the fastest cache.
WIDTH = 1024
# What a vote adds to a counter. Adding 1 under a condition compiles to two vector instructions, any
# other number to a single masked one: 15 % of the time.
VOTE = 3


def count_numba(columns: Tensor, limits: Tensor, start: int, stop: int) -> Tensor:
    """Count for four queries at a time, one triangle of the pairs if all are wanted."""
    graphs, _, length = columns.shape
    counts = columns.new_empty(graphs, stop - start, length)
    symmetric = (start, stop) == (0, length)
    _count_blocks(columns.numpy(), limits.numpy(), counts.numpy(), start, symmetric)
    return counts


@loop(parallel=True)
def _count_blocks(
    columns: Array, limits: Array, counts: Array, start: int, symmetric: bool
) -> None:
    graphs, rows, _ = counts.shape
    blocks = (rows + ROWS - 1) // ROWS
    pairs = (blocks + 1) // 2
    for task in numba.prange(graphs * pairs):
        graph, block = task // pairs, task % pairs
        # A short and a long block of the triangle, so that all tasks cost the same.
        mirror = blocks - 1 - block
        score, limit, count = columns[graph], limits[graph], counts[graph]
        _count_rows(score, limit, count, start, block * ROWS, symmetric)
        if mirror != block:
            _count_rows(score, limit, count, start, mirror * ROWS, symmetric)


@loop()
def _count_rows(
    columns: Array, limits: Array, counts: Array, start: int, row: int, symmetric: bool
) -> None:
    """Count for ``ROWS`` queries; those beyond the last one count the last one again."""
    rows, length = counts.shape
    last = rows - 1
    r0, r1, r2, r3 = row, min(row + 1, last), min(row + 2, last), min(row + 3, last)
    stop = min(row + ROWS, length) if symmetric else length
    # Four arrays, which the compiler knows to be apart.
    c0, c1 = np.empty(WIDTH, np.int32), np.empty(WIDTH, np.int32)
    c2, c3 = np.empty(WIDTH, np.int32), np.empty(WIDTH, np.int32)
    for left in range(0, stop, WIDTH):
        right = min(left + WIDTH, stop)
        c0[:], c1[:], c2[:], c3[:] = 0, 0, 0, 0
        _count_keys(columns, limits, (c0, c1, c2, c3), start, (r0, r1, r2, r3), left, right)
        for k in range(left, right):
            counts[r0, k], counts[r1, k] = c0[k - left] // VOTE, c1[k - left] // VOTE
            counts[r2, k], counts[r3, k] = c2[k - left] // VOTE, c3[k - left] // VOTE
        if symmetric:
            for k in range(left, right):
                counts[k, r0], counts[k, r1] = counts[r0, k], counts[r1, k]
                counts[k, r2], counts[k, r3] = counts[r2, k], counts[r3, k]


@loop()
def _count_keys(
    columns: Array,
    limits: Array,
    counters: tuple[Array, ...],
    start: int,
    rows: tuple[int, ...],
    left: int,
    right: int,
) -> None:
    # Written out for four rows and two keys: the compiler then keeps twelve vectors in registers.
    i0, i1, i2, i3 = start + rows[0], start + rows[1], start + rows[2], start + rows[3]
    c0, c1, c2, c3 = counters
    num_keys = columns.shape[0]
    for j in range(0, num_keys - 1, 2):
        x, y = columns[j], columns[j + 1]
        p, q = limits[j], limits[j + 1]
        x0, x1, x2, x3 = x[i0], x[i1], x[i2], x[i3]
        y0, y1, y2, y3 = y[i0], y[i1], y[i2], y[i3]
        x, y = x[left:right], y[left:right]
        for k in range(right - left):
            u, v = x[k], y[k]
            c0[k] = c0[k] + _vote(x0 * u, p) + _vote(y0 * v, q)
            c1[k] = c1[k] + _vote(x1 * u, p) + _vote(y1 * v, q)
            c2[k] = c2[k] + _vote(x2 * u, p) + _vote(y2 * v, q)
            c3[k] = c3[k] + _vote(x3 * u, p) + _vote(y3 * v, q)
    if num_keys % 2:
        x, p = columns[num_keys - 1], limits[num_keys - 1]
        x0, x1, x2, x3 = x[i0], x[i1], x[i2], x[i3]
        x = x[left:right]
        for k in range(right - left):
            c0[k] += _vote(x0 * x[k], p)
            c1[k] += _vote(x1 * x[k], p)
            c2[k] += _vote(x2 * x[k], p)
            c3[k] += _vote(x3 * x[k], p)


@loop()
def _vote(product: np.floating, limit: np.floating) -> np.int32:
    return np.int32(VOTE) if product > limit else np.int32(0)


# Queries and tokens of a tile. With two warps a thread owns one column of it, so that the scores of
# the queries come four at a time out of shared memory.
TILE, WARPS = 64, 2


def count_triton(columns: Tensor, limits: Tensor, start: int, stop: int) -> Tensor:
    """Count tiles of pairs in registers, one triangle of them if all are wanted."""
    graphs, num_keys, length = columns.shape
    counts = columns.new_empty(graphs, stop - start, length)
    symmetric = (start, stop) == (0, length)
    across, down = ceil_div(length, TILE), ceil_div(stop - start, TILE)
    tiles = across * (across + 1) // 2 if symmetric else down * across
    sizes = num_keys, length, start, stop, tiles
    options = {"SYMMETRIC": symmetric, "SIZE": TILE, "num_warps": WARPS}
    with torch.cuda.device_of(columns):
        _count_tile[(graphs * tiles,)](columns, limits, counts, *sizes, **options)
    return counts


@triton_kernel()
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
    number, across = tl.program_id(0) % tiles, tl.cdiv(length, SIZE)
    if SYMMETRIC:
        # Tiles on and below the diagonal. A long and a short row of the triangle make a line, and
        # all lines are of one width.
        odd = across % 2
        width = across + 1 - odd
        line, step = number // width, number % width
        longer = across - line
        row = tl.where(step < longer, longer - 1, line - odd)
        column = tl.where(step < longer, step, step - longer)
    else:
        row, column = number // across, number % across
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
