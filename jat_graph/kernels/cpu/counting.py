"""Count votes in numba: four queries at a time, one triangle of the pairs."""

from __future__ import annotations

import numpy as np
from numba import prange
from numpy.typing import NDArray
from torch import Tensor

from jat_graph.kernels.cpu.compiling import loop, parallel_loop

# Queries i whose counts are kept together: each score of a k that is read serves all of them.
ROWS = 4
# Tokens k at a time: four rows of counters fit the fastest cache.
WIDTH = 1024
# What a vote adds to a counter. Adding 1 under a condition compiles to two vector instructions, any
# other number to a single masked one: 15 % of the time.
VOTE = 3


def count(
    columns: Tensor,  # Key scores, NaN where masked, [G, U, L]
    limits: Tensor,  # The largest product that is no vote, [G, U]
    start: int,
    stop: int,
) -> Tensor:  # [G, stop - start, L]
    """Count, for queries i from ``start`` to ``stop`` and all k, the keys that vote for (i, k)."""
    graphs, _, length = columns.shape
    counts = columns.new_empty(graphs, stop - start, length)
    symmetric = (start, stop) == (0, length)
    _count(columns.numpy(), limits.numpy(), counts.numpy(), start, symmetric)
    return counts


@parallel_loop
def _count(
    columns: NDArray[np.floating],
    limits: NDArray[np.floating],
    counts: NDArray[np.floating],
    start: int,
    symmetric: bool,
) -> None:
    graphs, rows, _ = counts.shape
    blocks = (rows + ROWS - 1) // ROWS
    pairs = (blocks + 1) // 2
    for task in prange(graphs * pairs):
        graph, block = task // pairs, task % pairs
        # A short and a long block of the triangle, so that all tasks cost the same.
        mirror = blocks - 1 - block
        _count_rows(columns[graph], limits[graph], counts[graph], start, block * ROWS, symmetric)
        if mirror != block:
            _count_rows(
                columns[graph], limits[graph], counts[graph], start, mirror * ROWS, symmetric
            )


@loop
def _count_rows(
    columns: NDArray[np.floating],
    limits: NDArray[np.floating],
    counts: NDArray[np.floating],
    start: int,
    row: int,
    symmetric: bool,
) -> None:
    """Count for ``ROWS`` queries; those beyond the last one count the last one again."""
    rows, length = counts.shape
    last = rows - 1
    places = row, min(row + 1, last), min(row + 2, last), min(row + 3, last)
    stop = min(row + ROWS, length) if symmetric else length
    # Four arrays, which the compiler knows to be apart.
    c0, c1 = np.empty(WIDTH, np.int32), np.empty(WIDTH, np.int32)
    c2, c3 = np.empty(WIDTH, np.int32), np.empty(WIDTH, np.int32)
    for left in range(0, stop, WIDTH):
        right = min(left + WIDTH, stop)
        c0[:], c1[:], c2[:], c3[:] = 0, 0, 0, 0
        _count_tile(columns, limits, (c0, c1, c2, c3), start, places, left, right)
        _write(counts, (c0, c1, c2, c3), places, left, right, symmetric)


@loop
def _vote(product: np.floating, limit: np.floating) -> np.int32:
    return np.int32(VOTE) if product > limit else np.int32(0)


@loop
def _write(
    counts: NDArray[np.floating],
    counters: tuple[NDArray[np.int32], ...],
    places: tuple[int, ...],
    left: int,
    right: int,
    symmetric: bool,
) -> None:
    c0, c1, c2, c3 = counters
    r0, r1, r2, r3 = places
    for k in range(left, right):
        counts[r0, k], counts[r1, k] = c0[k - left] // VOTE, c1[k - left] // VOTE
        counts[r2, k], counts[r3, k] = c2[k - left] // VOTE, c3[k - left] // VOTE
    if symmetric:
        for k in range(left, right):
            counts[k, r0], counts[k, r1] = counts[r0, k], counts[r1, k]
            counts[k, r2], counts[k, r3] = counts[r2, k], counts[r3, k]


@loop
def _count_tile(
    columns: NDArray[np.floating],
    limits: NDArray[np.floating],
    counters: tuple[NDArray[np.int32], ...],
    start: int,
    places: tuple[int, ...],
    left: int,
    right: int,
) -> None:
    # Written out for four rows and two keys: the compiler then keeps twelve vectors in registers.
    i0, i1, i2, i3 = start + places[0], start + places[1], start + places[2], start + places[3]
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
