"""Walk over stones in numba: links are found in a row of scores, used, and forgotten."""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray
from torch import Tensor

from jat_graph.kernels.cpu.compiling import parallel_loop, summing_loop


def share(
    columns: Tensor,  # Standard scores with each stone, [G, U, L]
    threshold: Tensor,  # [G], at least 0
    sides: int,
    hard: bool,
    x: Tensor,  # Features [G, L, D]
    total: Tensor,  # [G, L, D], to which Σ_j b_ij mean_j is added
    degree: Tensor,  # [G, L], to which Σ_j b_ij is added
) -> Tensor:  # mean_j = Σ_i b_ij x_i / Σ_i b_ij, [G, sides · U, D]
    """Let every token take the means of its stones."""
    means = x.new_zeros(len(x), sides * columns.size(1), x.size(-1))
    arrays = (y.numpy() for y in (x, total, degree, means))
    _share_out(columns.numpy(), threshold.numpy(), sides, hard, *arrays)
    return means


def give(
    columns: Tensor,  # [G, U, L]
    threshold: Tensor,  # [G]
    sides: int,
    hard: bool,
    x: Tensor,  # [G, L, D]
    means: Tensor,  # [G, sides · U, D]
    grad: Tensor,  # of the total, [G, L, D]
    to_degree: Tensor,  # [G, L]
    to_x: Tensor,  # [G, L, D], to which the gradient is added
) -> Tensor:  # of the columns, [G, U, L]
    """Return the gradient of the same walk."""
    to_columns = torch.zeros_like(columns)
    arrays = (y.numpy() for y in (x, means, grad, to_degree, to_x, to_columns))
    _give_back(columns.numpy(), threshold.numpy(), sides, hard, *arrays)
    return to_columns


@parallel_loop
def _share_out(
    columns: NDArray[np.floating],
    threshold: NDArray[np.floating],
    sides: int,
    hard: bool,
    x: NDArray[np.floating],
    total: NDArray[np.floating],
    degree: NDArray[np.floating],
    means: NDArray[np.floating],
) -> None:
    graphs, stones, length = columns.shape
    for graph in prange(graphs):
        tokens, links = np.empty(length, np.int32), np.empty(length, x.dtype)
        for place in range(sides * stones):
            side, stone = place // stones, place % stones
            row, least = columns[graph, stone], threshold[graph]
            number = _find(row, least, side, hard, tokens, links)
            mean = means[graph, place]
            _average(x[graph], tokens[:number], links[:number], mean)
            for i in range(number):
                _add(total[graph, tokens[i]], links[i], mean)
                degree[graph, tokens[i]] += links[i]


@parallel_loop
def _give_back(
    columns: NDArray[np.floating],
    threshold: NDArray[np.floating],
    sides: int,
    hard: bool,
    x: NDArray[np.floating],
    means: NDArray[np.floating],
    grad: NDArray[np.floating],
    to_degree: NDArray[np.floating],
    to_x: NDArray[np.floating],
    to_columns: NDArray[np.floating],
) -> None:
    graphs, stones, length = columns.shape
    for graph in prange(graphs):
        tokens, links = np.empty(length, np.int32), np.empty(length, x.dtype)
        shared = np.empty(x.shape[2], x.dtype)
        for place in range(sides * stones):
            side, stone = place // stones, place % stones
            row, least = columns[graph, stone], threshold[graph]
            number = _find(row, least, side, hard, tokens, links)
            mean = means[graph, place]
            shared[:] = 0
            _average(grad[graph], tokens[:number], links[:number], shared)
            # What a stone's sum gets more of, it shares out less of.
            taken = (mean * shared).sum()
            for i in range(number):
                token = tokens[i]
                _add(to_x[graph, token], links[i], shared)
                given = _dots(mean, grad[graph, token], shared, x[graph, token])
                to_link = given - taken + to_degree[graph, token]
                to_columns[graph, stone, token] = to_link if side == 0 else -to_link


@summing_loop
def _find(
    row: NDArray[np.floating],
    least: float,
    side: int,
    hard: bool,
    tokens: NDArray[np.int32],
    links: NDArray[np.floating],
) -> int:
    """Write down who stands on a stone and how, and return how many do."""
    sign, number = row.dtype.type(1 - 2 * side), 0
    for token in range(len(row)):  # without a branch, which would guess wrong at every link
        link = sign * row[token] - least
        tokens[number], links[number] = token, link
        number += link > 0
    if hard:
        links[:number] = 1
    return number


@summing_loop
def _average(
    x: NDArray[np.floating],
    tokens: NDArray[np.int32],
    links: NDArray[np.floating],
    mean: NDArray[np.floating],  # zeros
) -> None:
    whole = len(tokens) // 4 * 4
    for i in range(0, whole, 4):  # the mean is read and written once for four tokens
        first, second, third, fourth = tokens[i : i + 4]
        a, b, c, d = links[i : i + 4]
        for k in range(len(mean)):
            high = a * x[first, k] + b * x[second, k]
            mean[k] += high + (c * x[third, k] + d * x[fourth, k])
    for i in range(whole, len(tokens)):
        _add(mean, links[i], x[tokens[i]])
    size = links.sum()
    if len(tokens):
        for k in range(len(mean)):
            mean[k] /= size


@summing_loop
def _add(row: NDArray[np.floating], factor: float, other: NDArray[np.floating]) -> None:
    for k in range(len(row)):
        row[k] += factor * other[k]


@summing_loop
def _dots(
    a: NDArray[np.floating],
    b: NDArray[np.floating],
    c: NDArray[np.floating],
    d: NDArray[np.floating],
) -> np.floating:
    """Return a · b + c · d."""
    total = a.dtype.type(0)
    for k in range(len(a)):
        total += a[k] * b[k] + c[k] * d[k]
    return total
