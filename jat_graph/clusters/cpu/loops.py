"""Loops in numba: scores and sums of listed rows, the best of many scores, and halves of keys."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from jat_graph.clusters.cpu import vectors
from jat_graph.clusters.cpu.emitter import LANES, ROWS
from jat_graph.core.compiling import ANY_ORDER, Array, loop


@loop(**ANY_ORDER)
def padded(number: int) -> int:
    """Return the next multiple of the numbers of a vector."""
    return -(-number // LANES) * LANES


@loop(**ANY_ORDER)
def score_rows(
    query: Array, row: int, keys: Array, rows: Array, number: int, scores: Array, into: int,
    at: int = 0,
) -> None:  # fmt: skip
    """Score the first of some listed rows of keys for a row of queries; equal rows score alike."""
    length = query.shape[1]
    whole = 0
    if number >= ROWS:
        whole = length // LANES * LANES
        for place in range(0, number - ROWS + 1, ROWS):
            vectors.score_eight(query, row, keys, rows, place, scores, into, at + place)
        if number % ROWS > 0:
            last = number - ROWS
            vectors.score_eight(query, row, keys, rows, last, scores, into, at + last)
    if whole == length:
        return
    for place in range(number):
        total = scores[into, at + place] if whole > 0 else scores.dtype.type(0)
        for column in range(whole, length):
            total += query[row, column] * vectors.number_at(query, keys, rows[place], column)
        scores[into, at + place] = total


@loop(**ANY_ORDER)
def add_rows(
    totals: Array, row: int, weights: Array, of: int, first: int, values: Array, rows: Array,
    start: int, number: int,
) -> None:  # fmt: skip
    """Add some listed rows of values to a row of totals, each times one of a row's weights."""
    length = totals.shape[1]
    less = first - start
    whole = length // LANES * LANES
    eights = start + number // ROWS * ROWS
    for place in range(start, eights, ROWS):
        vectors.add_eight(totals, row, weights, of, less + place, values, rows, place)
    if whole == length and number % ROWS == 0:
        return
    for place in range(start, start + number):
        for column in range(whole if place < eights else 0, length):
            other = vectors.number_at(totals, values, rows[place], column)
            totals[row, column] += weights[of, less + place] * other


@loop(**ANY_ORDER)
def spread_rows(
    totals: Array, rows: Array, start: int, number: int, weights: Array, of: int, first: int,
    parts: Array, row: int,
) -> None:  # fmt: skip
    """Add a row of parts to some listed rows of totals, each time times one of a row's weights."""
    length = totals.shape[1]
    less = first - start
    whole = length // LANES * LANES
    eights = start + number // ROWS * ROWS
    for place in range(start, eights, ROWS):
        vectors.spread_eight(totals, rows, place, weights, of, less + place, parts, row)
    if whole == length and number % ROWS == 0:
        return
    for place in range(start, start + number):
        for column in range(whole if place < eights else 0, length):
            totals[rows[place], column] += weights[of, less + place] * parts[row, column]


@loop(inline="always")
def _bounds(
    scores: Array, row: int, start: int, length: int, most: int, low: float, high: float, steps: int
) -> Any:
    """Halve what is between two bounds of scores, and return both, and how many are at the second.

    Enough scores are at the first or above it, and too few at the second or above it.
    """
    above = 0
    half = scores.dtype.type(0.5)
    for _ in range(steps):
        middle = low + (high - low) * half
        if not (low < middle < high):
            break
        number = vectors.count_from(scores, row, start, length, middle)
        if number >= most:
            low = middle
        else:
            high, above = middle, number
        if number == most:
            break
    return low, high, above


@loop(inline="always")
def _lowest_of_hands(
    scores: Array, row: int, start: int, length: int, room: Array, width: int
) -> float:
    """Deal scores out in turns, fill in the highest of each hand, and return the lowest of them."""
    room[1, :width] = -np.inf
    for first in range(0, length, width):
        for place in range(0, min(width, length - first), LANES):
            vectors.keep_larger(scores, row, start + first + place, room, 1, place)
    low: float = room[1, 0]
    for place in range(width):
        low = min(low, room[1, place])
    return low


@loop()
def best_places(  # noqa: C901  # one search, whose steps are too short to be called
    scores: Array, row: int, start: int, number: int, most: int, least: float, guess: float,
    room: Array, places: Array,
) -> tuple[int, float]:  # fmt: skip
    """Fill in the places of the best of so many scores, of equal ones the first.

    None is below ``least``. Return how many they are, and the lowest of their scores to guess the
    next ones by. Scores are a multiple of 16, -inf last; second rows of rooms are at least as long.
    """
    length = padded(number)
    filled = found = 0
    if most == 0:
        return 0, guess
    width = padded(2 * most)
    low = guess
    high = vectors.highest(scores, row, start, length)
    few = number <= most or vectors.count_from(scores, row, start, length, least) <= most
    if few:
        low = least
    elif not most <= vectors.count_from(scores, row, start, length, guess) <= width:
        # Among the highest of `width` hands so many are from a bound on: so they are among all.
        if number > 2 * width:
            low = _lowest_of_hands(scores, row, start, length, room, width)
            low, _, _ = _bounds(room, 1, 0, width, most, low, high, 8)
        else:
            low = high
            for place in range(start, start + number):
                low = min(low, scores[row, place])
    for first in range(0, length, 64):
        bits = 0
        for part in range(0, min(64, length - first), LANES):
            bits |= vectors.bits_from(scores, row, start + first + part, low) << part
        while bits != 0:
            place = first + vectors.lowest_bit(bits)
            bits &= bits - 1
            room[1, found], places[1, found] = scores[row, start + place], place
            found += place < number
    if few:
        return found, guess
    size = padded(found)
    room[1, found:size] = -np.inf
    high += abs(high) + scores.dtype.type(1)
    low, high, above = _bounds(room, 1, 0, size, most, low, high, 400)
    more = most - above
    if vectors.count_from(room, 1, 0, size, low) == most:
        high = low
        more = 0
    for item in range(found):  # without a branch that nobody can foresee
        one = room[1, item]
        places[1, filled] = places[1, item]
        filled += one >= high
        if more > 0 and low <= one < high:
            filled = filled + 1
            more = more - 1
    return filled, low


@loop(**ANY_ORDER)
def _farthest(x: Array, own: Array, way: Array, along: Array) -> None:
    """Fill in how far the point that is farthest from the mean of listed ones is from it."""
    number = len(own)
    features = x.shape[1]
    along[0, :number], way[:] = 1, 0
    add_rows(way, 0, along, 0, 0, x, own, 0, number)
    for column in range(features):
        way[0, column] /= number
    farthest = own[0]
    most = x.dtype.type(-1)
    for row in own:
        distance = x.dtype.type(0)
        for column in range(features):
            less = x[row, column] - way[0, column]
            distance += less * less
        if distance > most:
            farthest, most = row, distance
    for column in range(features):
        way[0, column] = x[farthest, column] - way[0, column]


@loop(**ANY_ORDER)
def _turn(x: Array, own: Array, way: Array, along: Array) -> None:
    """Fill in the sum of listed points, each times its weight, with 1 as its largest number."""
    way[:] = 0
    add_rows(way, 0, along, 0, 0, x, own, 0, len(own))
    largest = x.dtype.type(0)
    for column in range(x.shape[1]):
        largest = max(largest, abs(way[0, column]))
    for column in range(x.shape[1] if largest > 0 else 0):
        way[0, column] /= largest


@loop(**ANY_ORDER)
def _higher(
    x: Array, own: Array, vary: int, part: int, way: Array, along: Array, places: Array
) -> None:
    """Fill in 1 for the half of some points that lies one way, and -1 for the other half."""
    length = len(own)
    half = len(own) // 2
    none = x.dtype.type(np.inf)
    _farthest(x, own, way, along)
    for turn in range(vary + part + 1):
        score_rows(way, 0, x, own, length, along, 0)
        if turn < vary:
            mean = along[0, :length].sum() / x.dtype.type(length)
            for place in range(length):
                along[0, place] -= mean
        else:
            along[0, length : padded(length)] = -np.inf
            best_places(along, 0, 0, length, half, -none, none, along, places)
            along[0, :length] = -1
            for place in places[1, :half]:
                along[0, place] = 1
        if turn < vary + part:
            _turn(x, own, way, along)


@loop(**ANY_ORDER)
def _halve_block(x: Array, nodes: int, vary: int, part: int, order: Array) -> None:
    children = len(order)
    size = padded(children) + LANES
    along, places = np.empty((2, size), x.dtype), np.empty((2, size), np.int32)
    way = np.empty((1, x.shape[1]), x.dtype)
    moved = np.empty(children, np.int32)
    for child in range(children):
        order[child] = child
    length = children
    while length > children // nodes:
        for start in range(0, children, length):
            own = order[start : start + length]
            _higher(x, own, vary, part, way, along, places)
            first = 0
            other = length // 2
            for place in range(length):
                if along[0, place] == along[0, 0]:
                    moved[first] = own[place]
                    first += 1
                else:
                    moved[other] = own[place]
                    other += 1
            own[:] = moved[:length]
        length //= 2


@loop(parallel=True, **ANY_ORDER)
def halve(x: Array, nodes: int, rounds: tuple[int, int], order: Array) -> None:
    """Halve the points of each block, [blocks, children, D], until there are so many parts.

    A part is halved along a direction: first that of its farthest point, then towards where its
    points vary most, then between the means of the halves. The order has points of a part in a row;
    the half with the first point comes first.
    """
    vary, part = rounds
    for block in numba.prange(len(x)):
        _halve_block(x[block], nodes, vary, part, order[block])
