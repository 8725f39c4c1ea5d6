"""Loops in numba: scores and sums of listed rows, the highest of many scores, and k-means."""

from __future__ import annotations

import numpy as np

from jat_graph.kernels.compiling import ANY_ORDER, Array, loop

FAR = 32  # below the highest score, where nothing weighs anything
HIGHEST = {"fastmath": {"nnan", "nsz", "contract", "reassoc"}}


@loop(**ANY_ORDER)
def score_rows(query: Array, keys: Array, rows: Array, score: Array) -> None:
    """Score some rows of keys, four at a time."""
    number, place = len(rows), 0
    while place + 4 <= number:
        a, b, c, d = rows[place], rows[place + 1], rows[place + 2], rows[place + 3]
        w = x = y = z = query[0] * 0
        for column in range(len(query)):
            one = query[column]
            w += one * keys[a, column]
            x += one * keys[b, column]
            y += one * keys[c, column]
            z += one * keys[d, column]
        score[place], score[place + 1], score[place + 2], score[place + 3] = w, x, y, z
        place += 4
    while place < number:
        total, own = query[0] * 0, rows[place]
        for column in range(len(query)):
            total += query[column] * keys[own, column]
        score[place] = total
        place += 1


@loop(**ANY_ORDER)
def add_rows(total: Array, weight: Array, values: Array, rows: Array) -> None:
    """Add up some rows of values, four at a time."""
    number, place = len(rows), 0
    while place + 4 <= number:
        a, b, c, d = rows[place], rows[place + 1], rows[place + 2], rows[place + 3]
        w, x, y, z = weight[place], weight[place + 1], weight[place + 2], weight[place + 3]
        for column in range(len(total)):
            total[column] += (
                w * values[a, column] + x * values[b, column]
                + y * values[c, column] + z * values[d, column]
            )  # fmt: skip
        place += 4
    while place < number:
        own, one = rows[place], weight[place]
        for column in range(len(total)):
            total[column] += one * values[own, column]
        place += 1


@loop(**HIGHEST)
def lowest_and_highest(score: Array) -> tuple[float, float]:
    """Return the ends of some scores."""
    low, high = score[0], score[0]
    for place in range(len(score)):
        low, high = min(low, score[place]), max(high, score[place])
    return low, high


@loop(**HIGHEST)
def _bounds(score: Array, most: int, bound: Array) -> int:
    """Find what the highest scores are from: enough from the first bound on, too few from the next.

    Return how many are from the second on. Nothing is sorted: every other bound that is tried is
    where their number would be right if its logarithm fell evenly, and the others halve what is
    left.
    """
    low, high = lowest_and_highest(score)
    bound[0], bound[1], bound[2] = max(low, -3e38), np.inf, high
    below, above = len(score), 0  # how many there are from the first bound on, and from the second
    if below <= most:
        return 0
    for step in range(400):  # which always ends before
        middle, count = bound[2], 0
        for place in range(len(score)):
            count += score[place] >= middle
        if count >= most:
            bound[0], below = middle, count
        else:
            bound[1], above = middle, count
        part = 0.5
        if step % 2 == 0 and below > most:
            part = np.log(below / (most + 0.5)) / np.log(below / (above + 0.5))
        bound[2] = bound[0] + (bound[1] - bound[0]) * part
        if step == 0 and bound[0] < high - FAR:  # such as nodes without keys
            bound[2] = high - FAR
        elif not (bound[0] < bound[2] < bound[1]):
            bound[2] = bound[0] + (bound[1] - bound[0]) / 2
        if count == most or bound[2] <= bound[0] or bound[2] >= bound[1]:
            break
    return above


@loop()
def best_places(score: Array, bound: Array, best: Array) -> int:
    """Fill in the places of the highest scores, of equal ones the first; return how many."""
    if len(score) == 0:
        return 0
    room, filled = len(best) - _bounds(score, len(best), bound), 0
    low, above = bound[0], bound[1]
    for place in range(len(score)):
        one = score[place]
        if one >= low and (one >= above or room > 0):
            room -= one < above
            best[filled] = place
            filled += 1
    return filled


@loop(**HIGHEST)
def take_exp(score: Array, shift: float, power: Array) -> None:
    """Take e to scores less a shift; by a polynomial in single precision, many at once."""
    if score.itemsize > 4:
        for place in range(len(score)):
            score[place] = np.exp(score[place] - shift)
        return
    for place in range(len(score)):
        x = max((score[place] - shift) * np.float32(1.44269504), np.float32(-126))
        whole = np.floor(x + np.float32(0.5))
        y = (x - whole) * np.float32(0.693147181)
        z = y * np.float32(1 / 720) + np.float32(1 / 120)
        z = z * y + np.float32(1 / 24)
        z = z * y + np.float32(1 / 6)
        z = z * y + np.float32(0.5)
        z = z * y + np.float32(1)
        score[place] = z * y + np.float32(1)
        power[place] = (np.int32(whole) + np.int32(127)) << np.int32(23)
    factor = power.view(np.float32)
    for place in range(len(score)):
        score[place] *= factor[place]


@loop(**ANY_ORDER)
def move_centres(  # noqa: C901  # loops alone
    products: Array,  # of children and centres, [blocks, children, nodes]
    x: Array,  # children, [blocks, children, D]
    some: Array,  # which of them weigh anything, [blocks, children]
    centres: Array,  # which become the means of their nearest children, [blocks, nodes, D]
    owner: Array,  # the nearest of each child, to be filled in, [blocks, children]
) -> None:
    """Do one round of k-means in each block; of equal distances the first counts."""
    blocks, children, nodes = products.shape
    norms, count = np.empty(nodes, x.dtype), np.empty(nodes, np.int64)
    for block in range(blocks):
        means = centres[block]
        for node in range(nodes):
            total = x[0, 0, 0] * 0
            for column in range(x.shape[2]):
                total += means[node, column] * means[node, column]
            norms[node], count[node] = total / 2, 0
        for child in range(children):
            nearest, least = 0, norms[0] - products[block, child, 0]
            for node in range(1, nodes):
                distance = norms[node] - products[block, child, node]
                if distance < least:
                    nearest, least = node, distance
            owner[block, child] = nearest
            if some[block, child]:
                if count[nearest] == 0:
                    means[nearest] = 0
                count[nearest] += 1
                for column in range(x.shape[2]):
                    means[nearest, column] += x[block, child, column]
        for node in range(nodes):
            for column in range(x.shape[2] if count[node] else 0):
                means[node, column] /= count[node]
