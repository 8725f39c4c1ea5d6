"""From tokens to stones and on to other tokens, by the links alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jat_graph.core.compiling import ANY_ORDER, Array, choose, loop

if TYPE_CHECKING:
    import numba


class StoneScores(NamedTuple):
    """Scores with some stones, and which link: b = max(0, ±z − t), or 1 where it is not 0."""

    columns: Tensor  # standard scores z, [G, U, L]; NaN, which never links, where masked
    threshold: Tensor  # t of each graph, at least 0, [G]
    sides: int  # 1, or 2: low scores link, too, to stones of their own
    hard: bool  # whether every link is 1


def share_out(scores: StoneScores, x: Tensor, total: Tensor, degree: Tensor) -> Tensor:
    """Return mean_j = Σ_i b_ij x_i / Σ_i b_ij, or 0: ``[G, sides · U, D]``, of high scores first.

    Every token takes those of its stones: to ``total`` ``[G, L, D]`` Σ_j b_ij mean_j is added, and
    to ``degree`` ``[G, L]`` Σ_j b_ij.
    """
    # On CUDA torch does it as fast as anything.
    return choose(x.device, share_torch, share_numba, share_torch)(scores, x, total, degree)


def give_back(
    scores: StoneScores,
    x: Tensor,  # [G, L, D]
    means: Tensor,  # what `share_out` returned
    grad: Tensor,  # of the total, [G, L, D]
    to_degree: Tensor,  # gradient of the degree, [G, L]
    to_x: Tensor,  # [G, L, D], to which the gradient of x is added
) -> Tensor:  # [G, U, L], 0 where nothing links
    """Return the gradient of the scores of :func:`share_out`, straight through hard links."""
    give = choose(x.device, give_torch, give_numba, give_torch)
    return give(scores, x, means, grad, to_degree, to_x)


def share_torch(scores: StoneScores, x: Tensor, total: Tensor, degree: Tensor) -> Tensor:
    """Share by the links of all tokens, most of which may be 0: [G, L, D] -> [G, sides · U, D]."""
    links = _links(scores)
    means = _means(links, x)
    total.baddbmm_(links.mT, means)
    degree += links.sum(1)
    return means


def give_torch(
    scores: StoneScores, x: Tensor, means: Tensor, grad: Tensor, to_degree: Tensor, to_x: Tensor
) -> Tensor:
    """Return the gradient of the scores: [G, U, L]."""
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


def share_numba(scores: StoneScores, x: Tensor, total: Tensor, degree: Tensor) -> Tensor:
    """Share by links that are found in a row of scores, used, and forgotten."""
    means = x.new_zeros(len(x), scores.sides * scores.columns.size(1), x.size(-1))
    given = scores.columns.numpy(), scores.threshold.numpy(), scores.sides, scores.hard
    _share_out(given, *(y.numpy() for y in (x, total, degree, means)))
    return means


def give_numba(
    scores: StoneScores, x: Tensor, means: Tensor, grad: Tensor, to_degree: Tensor, to_x: Tensor
) -> Tensor:
    """Return the gradient of the scores: [G, U, L]."""
    to_columns = torch.zeros_like(scores.columns)
    given = scores.columns.numpy(), scores.threshold.numpy(), scores.sides, scores.hard
    _give_back(given, *(y.numpy() for y in (x, means, grad, to_degree, to_x, to_columns)))
    return to_columns


@loop(parallel=True)
def _share_out(
    scores: tuple[Array, Array, int, bool], x: Array, total: Array, degree: Array, means: Array
) -> None:
    columns, threshold, sides, hard = scores
    graphs, stones, length = columns.shape
    for graph in numba.prange(graphs):
        tokens, links = np.empty(length, np.int32), np.empty(length, x.dtype)
        for index in range(sides * stones):
            side, stone = index // stones, index % stones
            row, least = columns[graph, stone], threshold[graph]
            number = _find(row, least, side, hard, tokens, links)
            mean = means[graph, index]
            _average(x[graph], tokens[:number], links[:number], mean)
            for i in range(number):
                _add(total[graph, tokens[i]], links[i], mean)
                degree[graph, tokens[i]] += links[i]


@loop(parallel=True)
def _give_back(
    scores: tuple[Array, Array, int, bool],
    x: Array,
    means: Array,
    grad: Array,
    to_degree: Array,
    to_x: Array,
    to_columns: Array,
) -> None:
    columns, threshold, sides, hard = scores
    graphs, stones, length = columns.shape
    for graph in numba.prange(graphs):
        tokens, links = np.empty(length, np.int32), np.empty(length, x.dtype)
        shared = np.empty(x.shape[2], x.dtype)
        for index in range(sides * stones):
            side, stone = index // stones, index % stones
            row, least = columns[graph, stone], threshold[graph]
            number = _find(row, least, side, hard, tokens, links)
            mean = means[graph, index]
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


@loop(**ANY_ORDER)
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


@loop(**ANY_ORDER)
def _average(x: Array, tokens: Array, links: Array, mean: Array) -> None:
    """Write the weighted mean of some rows over zeros."""
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


@loop(**ANY_ORDER)
def _add(row: Array, factor: float, other: Array) -> None:
    for k in range(len(row)):
        row[k] += factor * other[k]


@loop(**ANY_ORDER)
def _dots(a: Array, b: Array, c: Array, d: Array) -> Any:
    """Return a · b + c · d."""
    total = a.dtype.type(0)
    for k in range(len(a)):
        total += a[k] * b[k] + c[k] * d[k]
    return total
