"""What tokens open, in numba: each goes down its tree alone."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from jat_graph.clusters.cpu import vectors
from jat_graph.clusters.cpu.emitter import LANES
from jat_graph.clusters.cpu.loops import add_rows, best_places, padded, score_rows
from jat_graph.clusters.draws import FIRST, STEP
from jat_graph.clusters.tree import FAN, LEAN
from jat_graph.core.compiling import ANY_ORDER, Array, loop

# Of a head of keys, of each level: means of keys and of values, and how far keys are from these.
Arrays: TypeAlias = tuple[Any, Any, Any]
# Where scores of the nodes that are met begin, how many they are, and of which level; and of each
# level the logarithm of a node's number of keys.
Met: TypeAlias = tuple[tuple[int, int, int], Array]
# Of each token a number to draw from, the most that is dropped, and what else is multiplied by: 0
# where there is no dropout.
Drawn: TypeAlias = tuple[Array, int, float]
KEPT, RANK = 2, 3  # rows of a room: scores of the children that a token keeps, and its ranking
NAMES = 3  # in the room of nodes: what dropout calls these children


@loop(**ANY_ORDER)
def room_for(query: Array, met: Met, opened: int) -> Any:
    """Return room for a token: scores and their nodes, where kept ones of a level end, marks."""
    (_, nodes, top), _ = met
    size = padded(max(nodes, (top + 1) * FAN * opened)) + LANES
    scores, items = np.empty((4, size), query.dtype), np.empty((4, size), np.int32)
    guesses = np.full(top + 1, np.inf, query.dtype)
    marks = np.zeros(nodes * FAN**top, np.bool_)
    return scores, items, np.zeros(top + 2, np.int64), marks, guesses


@loop(**ANY_ORDER)
def lean_of(query: Array, row: int) -> float:
    """Return by how much more a key's score may be, a unit of its distance from a mean."""
    total = query.dtype.type(0)
    for column in range(query.shape[1]):
        total += query[row, column] * query[row, column]
    return query.dtype.type(LEAN * np.sqrt(total / query.shape[1]))  # type: ignore[no-any-return]


@loop(**ANY_ORDER)
def best_met(scores: Array, row: int, near: int, met: Met) -> float:
    """Return the best score of near keys and of the nodes that are met."""
    (column, nodes, top), bias = met
    best = vectors.highest(scores, row, 0, near)
    if nodes > 0:
        best = max(best, vectors.highest(scores, row, column, padded(nodes)) + bias[top])
    return best  # type: ignore[no-any-return]


@loop(inline="always", **ANY_ORDER)
def open_top(
    found: Array, row: int, met: Met, spread: Any, lean: float, least: float, chosen: bool,
    rest: bool, goal: Array, room: Any,
) -> None:  # fmt: skip
    """Choose the best of the nodes that are met, unless they are chosen; they are met no longer."""
    column, nodes, top = met[0]
    scores, items, _, _, guesses = room
    if not chosen:
        for place in range(nodes):
            scores[RANK, place] = found[row, column + place] + lean * spread[top][place]
        scores[RANK, nodes : padded(nodes)] = -np.inf
        number, guesses[top] = best_places(
            scores, RANK, 0, nodes, len(goal), least, guesses[top], scores, items
        )
        goal[:number] = items[1, :number]
        goal[number:] = -1
    if rest:
        for node in goal:
            if node >= 0:
                found[row, column + node] = -np.inf


@loop(**ANY_ORDER)
def descend(  # noqa: C901  # one way down, whose steps are too short to be called
    query: Array, row: int, top: int, arrays: Arrays, lean: float, least: float,
    flags: tuple[bool, bool], opened: Array, read: Array, room: Any,
) -> int:  # fmt: skip
    """Go on below the nodes that are met, and list which children of opened ones a token keeps.

    Return how many it keeps; those of a level begin where those of the next one end.
    """
    (chosen, rest), (means, _, spread) = flags, arrays
    scores, items, ends, marks, guesses = room
    number = 0
    ends[:] = 0
    for level in range(top - 1, -1, -1):
        goal = opened[row, level - 1] if level > 0 else read[row]
        inner = 0
        for node in opened[row, level]:
            for child in range(FAN if node >= 0 else 0):
                items[0, inner] = node * FAN + child
                inner += 1
        score_rows(query, row, means[level], items[0], inner, scores, 0)
        if not chosen:
            for place in range(inner):
                scores[RANK, place] = scores[0, place] + lean * spread[level][items[0, place]]
            scores[RANK, inner : padded(inner)] = -np.inf
            found, guesses[level] = best_places(
                scores, RANK, 0, inner, len(goal), least, guesses[level], scores, items
            )
            for place in range(found):
                goal[place] = items[0, items[1, place]]
            goal[found:] = -1
        for node in goal if rest else goal[:0]:
            if node >= 0:
                marks[node] = True
        for place in range(inner if rest else 0):
            node = items[0, place]
            if not marks[node]:
                scores[KEPT, number], items[KEPT, number] = scores[0, place], node
                items[NAMES, number] = FIRST + STEP * node - level
                number += 1
            marks[node] = False
        ends[level] = number
    return number


@loop(inline="always", **ANY_ORDER)
def begin(
    query: Array, row: int, found: Array, into: int, near: int, met: Met, arrays: Arrays,
    margin: float, flags: tuple[bool, bool], opened: Array, read: Array, totals: Array, room: Any,
    drawn: Drawn,
) -> tuple[float, float]:  # fmt: skip
    """Let a token descend, and turn what it met into weights; return their sum and their shift.

    Values of the children that it keeps are added to its total.
    """
    (column, nodes, top), bias = met
    scores, items, ends, _, _ = room
    seeds, most, factor = drawn
    best = best_met(found, into, near, met)
    number = 0
    rest = flags[1]
    shift = best if rest else vectors.highest(found, into, 0, near)
    least = best - margin
    lean = lean_of(query, row)
    if nodes > 0:
        goal = opened[row, top - 1] if top > 0 else read[row]
        open_top(found, into, met, arrays[2], lean, least, flags[0], rest, goal, room)
        number = descend(query, row, top, arrays, lean, least, flags, opened, read, room)
    for level in range(top if number else 0):
        for place in range(ends[level + 1], ends[level]):
            scores[KEPT, place] += bias[level]
            shift = max(shift, scores[KEPT, place])
    sums = vectors.take_exp(found, into, 0, near, shift)
    if nodes > 0 and rest:
        sums += vectors.take_exp(found, into, column, padded(nodes), shift - bias[top])
    if number:
        scores[KEPT, number : padded(number)] = -np.inf
        sums += vectors.take_exp(scores, KEPT, 0, padded(number), shift)
        if factor > 0:
            vectors.drop(scores, KEPT, items, NAMES, padded(number), seeds[row], most, factor)
        for level in range(top):
            first = ends[level + 1]
            kept = ends[level] - ends[level + 1]
            add_rows(totals, row, scores, KEPT, first, arrays[1][level], items[KEPT], first, kept)
    return sums, shift


@loop(**ANY_ORDER)
def choose_rows(
    query: Array, scores: Array, near: int, met: Met, arrays: Arrays, margin: float,
    opened: Array, read: Array,
) -> None:  # fmt: skip
    """Let tokens descend a tree, and fill in what they open and read."""
    (_, nodes, top), _ = met
    room = room_for(query, met, opened.shape[2])
    flags = (False, False)
    for row in range(len(query) if nodes > 0 else 0):
        goal = opened[row, top - 1] if top > 0 else read[row]
        lean = lean_of(query, row)
        least = best_met(scores, row, near, met) - margin
        open_top(scores, row, met, arrays[2], lean, least, False, False, goal, room)
        descend(query, row, top, arrays, lean, least, flags, opened, read, room)
