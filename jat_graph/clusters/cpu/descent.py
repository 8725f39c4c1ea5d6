"""What tokens open, in numba: each goes down its tree alone."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from jat_graph.clusters.cpu import vectors
from jat_graph.clusters.cpu.emitter import LANES
from jat_graph.clusters.cpu.loops import add_rows, best_places, padded, score_rows
from jat_graph.clusters.tree import FAN, LEAN
from jat_graph.kernels.compiling import ANY_ORDER, Array, loop

# Of a head of keys, of each level: children of nodes, their means of keys and of values, and how
# far keys are from these.
Arrays: TypeAlias = tuple[Any, Any, Any, Any]
# Of a level: where scores of the nodes that are met begin, which of them are the first and the end,
# and the logarithm of their number of keys.
Spans: TypeAlias = tuple[Array, Array]
KEPT, RANK = 2, 3  # rows of a room: scores of the children that a token keeps, and its ranking


@loop(**ANY_ORDER)
def room_for(query: Array, spans: Array, opened: int) -> Any:
    """Return room for a token: scores and their nodes, where kept ones of a level end, marks."""
    most, nodes, levels = len(spans) * FAN * opened, 0, len(spans)
    for level in range(levels):
        most = max(most, spans[level, 2] - spans[level, 1] + FAN * opened)
        nodes = max(nodes, spans[level, 2])
    size = padded(most) + LANES
    scores, items = np.empty((4, size), query.dtype), np.empty((3, size), np.int32)
    guesses, marks = np.full(levels, np.inf, query.dtype), np.zeros(nodes, np.bool_)
    return scores, items, np.zeros(levels + 1, np.int64), marks, guesses


@loop(**ANY_ORDER)
def lean_of(query: Array, row: int) -> float:
    """Return by how much more a key's score may be, a unit of its distance from a mean."""
    total = query.dtype.type(0)
    for column in range(query.shape[1]):
        total += query[row, column] * query[row, column]
    lean: float = query.dtype.type(LEAN * np.sqrt(total / query.shape[1]))
    return lean


@loop(**ANY_ORDER)
def best_met(met: Array, row: int, near: int, spans: Spans) -> float:
    """Return the best score of near keys and of the nodes that are met."""
    (table, bias), best = spans, vectors.highest(met, row, 0, near)
    for level in range(len(table)):
        width = padded(table[level, 2] - table[level, 1])
        if width:
            best = max(best, vectors.highest(met, row, table[level, 0], width) + bias[level])
    return best  # type: ignore[no-any-return]


@loop(inline="always", **ANY_ORDER)
def open_top(
    met: Array, row: int, span: Array, spread: Array, lean: float, least: float, chosen: bool,
    rest: bool, goal: Array, guess: float, scores: Array, items: Array,
) -> float:  # fmt: skip
    """Choose the best of the highest nodes, unless they are chosen; they are met no longer."""
    column, start, stop = span
    if not chosen:
        width = stop - start
        for place in range(width):
            scores[RANK, place] = met[row, column + place] + lean * spread[start + place]
        scores[RANK, width : padded(width)] = -np.inf
        found, guess = best_places(scores, RANK, 0, width, len(goal), least, guess, scores, items)
        for place in range(found):
            goal[place] = items[1, place] + start
        goal[found:] = -1
    if rest:
        for node in goal:
            if node >= 0:
                met[row, column + node - start] = -np.inf
    return guess


@loop(**ANY_ORDER)
def descend(  # noqa: C901  # one way down, whose steps are too short to be called
    query: Array, row: int, met: Array, into: int, spans: Array, arrays: Arrays, lean: float,
    least: float, flags: tuple[bool, bool], opened: Array, read: Array, room: Any,
) -> int:  # fmt: skip
    """Go on below the highest nodes, and list which children of opened nodes a token keeps.

    Return how many it keeps; those of a level begin where those of the next one end.
    """
    chosen, rest = flags
    scores, items, ends, marks, guesses = room
    number, levels = 0, len(spans)
    ends[:] = 0
    for level in range(levels - 2, -1, -1):
        column, start, stop = spans[level]
        goal, inner = opened[row, level - 1] if level > 0 else read[row], 0
        children = arrays[0][level + 1]
        for place in range(opened.shape[2]):
            node = opened[row, level, place]
            for child in range(FAN if node >= 0 else 0):
                items[0, inner] = children[node, child]
                inner += 1
        score_rows(query, row, arrays[1][level], items[0], inner, scores, 0)
        if not chosen:
            total, spread = inner + stop - start, arrays[3][level]
            for place in range(inner):
                scores[RANK, place] = scores[0, place] + lean * spread[items[0, place]]
            for place in range(stop - start):
                score = met[into, column + place]
                scores[RANK, inner + place] = score + lean * spread[start + place]
                items[0, inner + place] = start + place
            scores[RANK, total : padded(total)] = -np.inf
            found, guesses[level] = best_places(
                scores, RANK, 0, total, len(goal), least, guesses[level], scores, items
            )
            for place in range(found):
                goal[place] = items[0, items[1, place]]
            goal[found:] = -1
        for node in goal if rest else goal[:0]:
            if node >= start:
                met[into, column + node - start] = -np.inf
            elif node >= 0:
                marks[node] = True
        for place in range(inner if rest else 0):
            node = items[0, place]
            if not marks[node]:
                scores[KEPT, number], items[KEPT, number] = scores[0, place], node
                number += 1
            marks[node] = False
        ends[level] = number
    return number


@loop(inline="always", **ANY_ORDER)
def begin(
    query: Array, row: int, met: Array, into: int, near: int, spans: Spans, arrays: Arrays,
    margin: float, flags: tuple[bool, bool], opened: Array, read: Array, totals: Array, room: Any,
) -> tuple[float, float]:  # fmt: skip
    """Let a token descend, and turn what it met into weights; return their sum and their shift.

    Values of the children that it keeps are added to its total.
    """
    (table, bias), (scores, items, ends, _, guesses) = spans, room
    levels = len(table) if flags[1] else 0
    best = best_met(met, into, near, spans)
    shift, least = best if flags[1] else vectors.highest(met, into, 0, near), best - margin
    number, top, lean = 0, len(table) - 1, lean_of(query, row)
    if top >= 0:
        goal = opened[row, top - 1] if top > 0 else read[row]
        guesses[top] = open_top(
            met, into, table[top], arrays[3][top], lean, least, flags[0], flags[1], goal,
            guesses[top], scores, items,
        )  # fmt: skip
    if top > 0:
        number = descend(
            query, row, met, into, table, arrays, lean, least, flags, opened, read, room
        )
    for level in range(levels if number else 0):
        for place in range(ends[level + 1], ends[level]):
            scores[KEPT, place] += bias[level]
            shift = max(shift, scores[KEPT, place])
    sums = vectors.take_exp(met, into, 0, near, shift)
    for level in range(levels):
        width = padded(table[level, 2] - table[level, 1])
        sums += vectors.take_exp(met, into, table[level, 0], width, shift - bias[level])
    if number:
        scores[KEPT, number : padded(number)] = -np.inf
        sums += vectors.take_exp(scores, KEPT, 0, padded(number), shift)
        for level in range(levels):
            first, kept = ends[level + 1], ends[level] - ends[level + 1]
            values, nodes = arrays[2][level], items[KEPT]
            add_rows(totals, row, scores, KEPT, first, values, nodes, first, kept)
    return sums, shift


@loop(**ANY_ORDER)
def choose_rows(
    query: Array, met: Array, near: int, spans: Spans, arrays: Arrays, margin: float,
    opened: Array, read: Array,
) -> None:  # fmt: skip
    """Let tokens descend a tree, and fill in what they open and read."""
    table, _ = spans
    room, flags = room_for(query, table, opened.shape[2]), (False, False)
    top = len(table) - 1
    scores, items, _, _, guesses = room
    for row in range(len(query) if top >= 0 else 0):
        goal = opened[row, top - 1] if top > 0 else read[row]
        lean, least = lean_of(query, row), best_met(met, row, near, spans) - margin
        guesses[top] = open_top(
            met, row, table[top], arrays[3][top], lean, least, False, False, goal, guesses[top],
            scores, items,
        )  # fmt: skip
        if top > 0:
            descend(query, row, met, row, table, arrays, lean, least, flags, opened, read, room)
