"""Walk over stones from token to token, by the links alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jat_graph.kernels.compiling import Array, choose, parallel_loop, summing_loop

if TYPE_CHECKING:
    import numba


class StoneScores(NamedTuple):
    """Scores with some stones, and which of them link: b = max(0, ±z − t), or 1 where it is not 0.

    Args:
        columns: Standard scores z; NaN, which never links, where masked.
        threshold: t of each graph, at least 0.
        sides: 1, or 2: low scores link, too, to stones of their own.
        hard: Whether every link is 1.

    Shapes:
        - ``columns``: ``[G, U, L]``; ``threshold``: ``[G]``
    """

    columns: Tensor
    threshold: Tensor
    sides: int
    hard: bool


def share_out(scores: StoneScores, x: Tensor, total: Tensor, degree: Tensor) -> Tensor:
    """Let every token take the means of the stones that it stands on.

    Args:
        scores: Scores with some stones.
        x: Features ``[G, L, D]``.
        total: ``[G, L, D]``, to which Σ_j b_ij mean_j is added.
        degree: ``[G, L]``, to which Σ_j b_ij is added.

    Returns:
        mean_j = Σ_i b_ij x_i / Σ_i b_ij, stones of high scores first; 0 where nobody stands.

    Shapes:
        - **output:** ``[G, sides · U, D]``

    Reference:
        Stones are this library's own.
    """
    # On CUDA torch does it as fast as anything.
    share = choose(x.device, share_torch, share_numba, share_torch)
    return share(scores, x, total, degree)


def give_back(
    scores: StoneScores, x: Tensor, means: Tensor, grad: Tensor, to_degree: Tensor, to_x: Tensor
) -> Tensor:
    """Return the gradient of the scores of :func:`share_out`, straight through hard links.

    Args:
        scores: Scores with some stones.
        x: Features ``[G, L, D]``.
        means: What :func:`share_out` returned, ``[G, sides · U, D]``.
        grad: Gradient of the total, ``[G, L, D]``.
        to_degree: Gradient of the degree, ``[G, L]``.
        to_x: ``[G, L, D]``, to which the gradient of ``x`` is added.

    Returns:
        The gradient, 0 where nothing links.

    Shapes:
        - **output:** ``[G, U, L]``

    Reference:
        Stones are this library's own.
    """
    give = choose(x.device, give_torch, give_numba, give_torch)
    return give(scores, x, means, grad, to_degree, to_x)


# --- torch: by the links of all tokens, most of which may be 0 -----------------------------------


def share_torch(scores: StoneScores, x: Tensor, total: Tensor, degree: Tensor) -> Tensor:
    """Let every token take the means of its stones: [G, L, D] -> [G, sides · U, D]."""
    links = _links(scores)
    means = _means(links, x)
    total.baddbmm_(links.mT, means)
    degree += links.sum(1)
    return means


def give_torch(
    scores: StoneScores, x: Tensor, means: Tensor, grad: Tensor, to_degree: Tensor, to_x: Tensor
) -> Tensor:
    """Return the gradient of the same walk: [G, U, L]."""
    links = _links(scores)
    shared = _means(links, grad)
    to_x.baddbmm_(links.mT, shared)
    # What a stone's sum gets more of, it shares out less of.
    to_links = (means @ grad.mT).baddbmm_(shared, x.mT)
    to_links += to_degree.unsqueeze(1) - (shared * means).sum(-1, keepdim=True)
    to_links.masked_fill_(links == 0, 0.0)
    high, *low = to_links.chunk(scores.sides, dim=1)
    return high - low[0] if low else high


def _links(scores: StoneScores) -> Tensor:
    columns, least = scores.columns, scores.threshold[:, None, None]
    links = torch.cat([columns - least, -columns - least][: scores.sides], dim=1)
    links.masked_fill_(~(links > 0), 0.0)  # NaN never links
    return links.sign_() if scores.hard else links


def _means(links: Tensor, x: Tensor) -> Tensor:  # [G, M, L], [G, L, D]; [G, M, D]
    sizes = links.sum(-1, keepdim=True)
    return (links @ x).div_(sizes.masked_fill_(sizes == 0, 1.0))


# --- numba: links are found in a row of scores, used, and forgotten ------------------------------


def share_numba(scores: StoneScores, x: Tensor, total: Tensor, degree: Tensor) -> Tensor:
    """Let every token take the means of its stones: [G, L, D] -> [G, sides · U, D]."""
    columns, threshold, sides, hard = scores
    means = x.new_zeros(len(x), sides * columns.size(1), x.size(-1))
    arrays = (y.numpy() for y in (x, total, degree, means))
    _share_out(columns.numpy(), threshold.numpy(), sides, hard, *arrays)
    return means


def give_numba(
    scores: StoneScores, x: Tensor, means: Tensor, grad: Tensor, to_degree: Tensor, to_x: Tensor
) -> Tensor:
    """Return the gradient of the same walk: [G, U, L]."""
    columns, threshold, sides, hard = scores
    to_columns = torch.zeros_like(columns)
    arrays = (y.numpy() for y in (x, means, grad, to_degree, to_x, to_columns))
    _give_back(columns.numpy(), threshold.numpy(), sides, hard, *arrays)
    return to_columns


@parallel_loop
def _share_out(
    columns: Array,
    threshold: Array,
    sides: int,
    hard: bool,
    x: Array,
    total: Array,
    degree: Array,
    means: Array,
) -> None:
    graphs, stones, length = columns.shape
    for graph in numba.prange(graphs):
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
    columns: Array,
    threshold: Array,
    sides: int,
    hard: bool,
    x: Array,
    means: Array,
    grad: Array,
    to_degree: Array,
    to_x: Array,
    to_columns: Array,
) -> None:
    graphs, stones, length = columns.shape
    for graph in numba.prange(graphs):
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
def _find(row: Array, least: float, side: int, hard: bool, tokens: Array, links: Array) -> int:
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
    x: Array,
    tokens: Array,
    links: Array,
    mean: Array,  # zeros
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
def _add(row: Array, factor: float, other: Array) -> None:
    for k in range(len(row)):
        row[k] += factor * other[k]


@summing_loop
def _dots(a: Array, b: Array, c: Array, d: Array) -> Any:
    """Return a · b + c · d."""
    total = a.dtype.type(0)
    for k in range(len(a)):
        total += a[k] * b[k] + c[k] * d[k]
    return total
