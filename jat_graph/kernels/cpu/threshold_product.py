"""Multiply by a sum of threshold graphs in numba: running sums of rows, read where they end."""

from __future__ import annotations

import numba
import numpy as np
from numba import prange
from numpy.typing import NDArray
from torch import Tensor

from jat_graph.kernels.cpu.compiling import loop, parallel_loop
from jat_graph.kernels.cpu.rows import WIDTH, add, add_row, clear, new_sum, store

# Running sums that are held at a time: they fit the fastest cache.
CHUNK = 128


def add_joined(
    x: Tensor,  # Features [G, L, D]
    order: Tensor,  # Tokens by falling score with each key, [G, U, L]
    reach: Tensor,  # How far the token at each place joins, [G, U, L]
) -> Tensor:  # [G, L, D]
    """Return y_i = Σ_j Σ_k 1[j joins (i, k)] x_k."""
    total = x.new_empty(x.shape)
    # Large NumPy arrays lie on huge pages, which random rows need.
    scratch = np.empty((numba.config.NUMBA_NUM_THREADS, 2, x.size(1), WIDTH), x.numpy().dtype)
    _add_joined(x.numpy(), order.numpy(), reach.numpy(), total.numpy(), scratch)
    return total


@parallel_loop
def _add_joined(
    x: NDArray[np.floating],
    order: NDArray[np.int32],
    reach: NDArray[np.int32],
    total: NDArray[np.floating],
    scratch: NDArray[np.floating],
) -> None:
    graphs, length, features = x.shape
    slices = (features + WIDTH - 1) // WIDTH
    for task in prange(graphs * slices):
        graph, first = task // slices, task % slices * WIDTH
        last = min(first + WIDTH, features)
        rows, sums = scratch[numba.get_thread_id()]
        rows[:, last - first :] = 0
        sums[:] = 0
        for token in range(length):
            for feature in range(first, last):
                rows[token, feature - first] = x[graph, token, feature]
        _add_keys(rows, order[graph], reach[graph], sums)
        for token in range(length):
            for feature in range(first, last):
                total[graph, token, feature] = sums[token, feature - first]


@loop
def _add_keys(
    rows: NDArray[np.floating],
    order: NDArray[np.int32],
    reach: NDArray[np.int32],
    sums: NDArray[np.floating],
) -> None:
    running = np.empty((CHUNK, WIDTH), rows.dtype)
    for key in range(len(order)):
        _add_side(rows, order[key], reach[key], 1, running, sums)
        _add_side(rows, order[key][::-1], reach[key][::-1], -1, running, sums)


@loop
def _add_side(
    rows: NDArray[np.floating],
    order: NDArray[np.int32],
    reach: NDArray[np.int32],
    sign: int,
    running: NDArray[np.floating],
    sums: NDArray[np.floating],
) -> None:
    """Add to each token's sum the running sum of rows, in the order, up to its reach.

    Towards the end of the order the reach rises. In chunks: a loop that adds rows until the next
    token's reach would guess wrong at every token.
    """
    length = len(order)
    size = 0
    while size < length and sign * reach[size] > 0:
        size += 1
    # A score of zero, where it votes, joins everybody from the middle.
    zeros = 0
    while zeros < size and sign * reach[size - 1 - zeros] == length:
        zeros += 1
    total = new_sum()
    clear(total)
    place, token = 0, size - 1 - zeros
    while token >= 0:
        stop = min(place + CHUNK, sign * reach[0])
        for here in range(place, stop):
            add(total, rows, np.uintp(order[here]))
            store(total, running, np.uintp(here - place))
        last = token
        while token >= 0 and sign * reach[token] <= stop:
            token -= 1
        for target in range(token + 1, last + 1):
            end = sign * reach[target] - 1 - place
            add_row(sums, np.uintp(order[target]), running, np.uintp(end))
        place = stop
    if zeros:
        for here in range(place, length):
            add(total, rows, np.uintp(order[here]))
        store(total, running, np.uintp(0))
        for target in range(size - zeros, size):
            add_row(sums, np.uintp(order[target]), running, np.uintp(0))
