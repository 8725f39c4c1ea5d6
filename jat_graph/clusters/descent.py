"""What single tokens open and read, token by token, in numba."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from jat_graph.clusters.loops import (
    add_rows,
    best_places,
    lowest_and_highest,
    score_rows,
    take_exp,
)
from jat_graph.kernels.compiling import ANY_ORDER, Array, loop

# Of a head of keys: keys and values that are read exactly, [any, D] and [any, Dv]; which of them
# are those of clusters, one after another; and of each level which means are the children of the
# next, its children by node, where those of each node begin, logarithms of sizes, and means of keys
# and of values.
Arrays: TypeAlias = tuple[Any, ...]


@loop(**ANY_ORDER)
def _room(arrays: Arrays, opened: Array, read: Array, room: int, levels: int) -> Any:
    """Return room for the work of a token: scores and items, and what it comes to read."""
    numbers = np.empty((4, room), arrays[0].dtype)
    counts = np.empty((3, room), np.int32)
    best = np.empty(max(opened.shape[2], read.shape[1]), np.int32)
    marks, ends = np.zeros(len(arrays[6][0]), np.bool_), np.empty(levels + 1, np.int64)
    return numbers, counts, best, marks, ends


@loop(**ANY_ORDER)
def _descend(  # noqa: C901  # one way down, in whose steps nothing is called twice
    query: Array,
    met: Array,
    spans: Array,
    arrays: Arrays,
    flags: tuple[bool, bool, bool],
    opened: Array,
    read: Array,
    work: Any,
) -> int:
    """Descend the tree, and list what a token reads; return how much that is.

    Its scores and rows are the third of the numbers and the second of the counts: nodes from the
    highest level on, and keys last; ``ends`` says where those of each level begin.
    """
    keys, _, order, rows, members, starts, bias, means, _ = arrays
    held, chosen, rest = flags
    numbers, counts, best, marks, ends = work
    score, bound, kept, item, row = numbers[0], numbers[1], numbers[2], counts[0], counts[1]
    levels, number = len(spans), 0
    for level in range(levels - 1, -1, -1):
        column, start, stop = spans[level]
        goal, places, base = opened[level - 1] if level > 0 else read, 0, number
        ends[level + 1] = number
        if level + 1 < levels:
            begins, children, where = starts[level + 1], members[level + 1], rows[level]
            size, mean = bias[level], means[level]
            for node in opened[level]:
                if node < 0:
                    break
                first, last = begins[node], begins[node + 1]
                if level > 0 or held:
                    score_rows(query, mean, where[first:last], score[places:])
                for place in range(first, last):
                    child = children[place]
                    if level == 0 and not held:
                        own = order[starts[0][child] : starts[0][child + 1]]
                        score_rows(query, keys, own, kept[base:])
                        score[places] = kept[base : base + len(own)].sum() / max(len(own), 1)
                    score[places] += size[child]
                    item[places], row[base + places] = child, where[place]
                    places += 1
        inner = places
        if not chosen and level + 1 == levels:  # all of them are met
            goal[best_places(met[column : column + stop - start], bound, goal) :] = -1
        elif not chosen:
            for node in range(start, stop):
                score[places], item[places] = met[column + node - start], node
                places += 1
            filled = best_places(score[:places], bound, best[: len(goal)])
            for place in range(filled):
                goal[place] = item[best[place]]
            goal[filled:] = -1
        for node in goal if rest else goal[:0]:
            if node < 0:
                break
            marks[node] = True
            if node >= start:
                met[column + node - start] = -np.inf
        for place in range(inner if rest else 0):
            child = item[place]
            if marks[child] or not score[place] > -np.inf:
                continue
            if level > 0 or held:
                kept[number], row[number] = score[place], row[base + place]
                number += 1
                continue
            for own in order[starts[0][child] : starts[0][child + 1]]:
                kept[number], row[number] = score[place] - bias[0][child], own
                number += 1
        for node in goal:
            if node < 0:
                break
            marks[node] = False
    ends[0] = number
    for node in read:
        if node < 0:
            break
        own = order[starts[0][node] : starts[0][node + 1]]
        score_rows(query, keys, own, kept[number:])
        row[number : number + len(own)] = own
        number += len(own)
    return number


@loop(**ANY_ORDER)
def read_rows(
    query: Array,  # scaled, [R, D]
    met: Array,  # scores of what all tokens meet, near keys first, [R, columns]
    spans: Array,  # of each level a column of these, its first and last such nodes, [levels, 3]
    arrays: Arrays,
    flags: tuple[bool, bool, bool],  # whether there are means of clusters that are children, the
    # choice is given, and nodes stand for what is not read
    opened: Array,  # nodes of each level above the first, -1 for none, [R, levels, groups]
    read: Array,  # clusters, [R, clusters]
    room: int,  # for what a token scores at most
    total: Array,  # what tokens read beside what all meet, to be filled in, [R, Dv] or nothing
    weight: Array,  # the sum of its weights, [R]
    largest: Array,  # of all scores, [R]
) -> None:
    """Let tokens descend a tree, and read what they find there."""
    work = _room(arrays, opened, read, room, len(spans))
    kept, row, power, ends = work[0][2], work[1][1], work[1][2], work[4]
    values, value_means = arrays[1], arrays[8]
    for token in range(len(query)):
        number = _descend(
            query[token], met[token], spans, arrays, flags, opened[token], read[token], work
        )
        if total.size == 0:
            continue
        most = lowest_and_highest(met[token])[1]
        if number:
            most = max(most, lowest_and_highest(kept[:number])[1])
        own, sums = total[token], query[token, 0] * 0
        own[:] = 0
        take_exp(kept[:number], most, power)
        for place in range(number):
            sums += kept[place]
        weight[token], largest[token] = sums, most
        for level in range(len(spans) - 1, -1, -1):
            inside = slice(ends[level], ends[level - 1] if level else number)
            if level > 1 or (level == 1 and flags[0]):
                add_rows(own, kept[inside], value_means[level - 1], row[inside])
            else:
                add_rows(own, kept[inside], values, row[inside])


@loop(**ANY_ORDER)
def read_last_rows(
    query: Array,  # of one token, [R, D]
    keys: Array,  # of all, [n, D]
    values: Array,
    near: Array,  # sinks and near keys, which it reads exactly
    spans: Array,
    first: int,  # the first cluster that has a mean
    arrays: Arrays,
    flags: tuple[bool, bool, bool],
    opened: Array,
    read: Array,
    room: int,
    output: Array,  # [R, Dv]
    lse: Array,  # [R]
) -> None:
    """Let the last token read all at once: for few rows no product of matrices is worth it."""
    columns, levels = len(near), len(spans)
    for level in range(levels):
        columns += spans[level, 2] - spans[level, 1]
    met, power = np.empty((len(query), columns), query.dtype), np.empty(columns, np.int32)
    rows = np.arange(columns).astype(np.int32)
    weight, largest = np.empty(len(query), query.dtype), np.empty(len(query), query.dtype)
    for token in range(len(query)):
        score_rows(query[token], keys, near, met[token])
        for level in range(levels):
            column, start, stop = spans[level]
            less = start - first if level == 0 else start
            own, bias = arrays[7][level][less : less + stop - start], arrays[6][level]
            score_rows(query[token], own, rows[: stop - start], met[token, column:])
            for node in range(start, stop):
                met[token, column + node - start] += bias[node]
    read_rows(query, met, spans, arrays, flags, opened, read, room, output, weight, largest)
    for token in range(len(query)):
        scores, total = met[token], output[token]
        take_exp(scores, largest[token], power)
        add_rows(total, scores, values, near)
        sums = weight[token]
        for column in range(columns if flags[2] else len(near)):
            sums += scores[column]
        for level in range(levels if flags[2] else 0):
            column, start, stop = spans[level]
            less = start - first if level == 0 else start
            own = arrays[8][level][less : less + stop - start]
            add_rows(total, scores[column:], own, rows[: stop - start])
        for place in range(len(total)):
            total[place] /= sums
        lse[token] = largest[token] + np.log(sums)


@loop(**ANY_ORDER)
def _spread(weight: Array, part: Array, totals: Array, rows: Array) -> None:
    """Add a part, times a weight, to each of some rows."""
    for place in range(len(rows)):
        own, one = rows[place], weight[place]
        for column in range(len(part)):
            totals[own, column] += one * part[column]


@loop(**ANY_ORDER)
def differentiate_rows(
    query: Array,
    met: Array,
    spans: Array,
    arrays: Arrays,
    flags: tuple[bool, bool, bool],
    opened: Array,
    read: Array,
    room: int,
    lse: Array,  # [R]
    grad: Array,  # of outputs, [R, Dv]
    delta: Array,  # its product with the output, [R]
    by_query: Array,  # to be filled in, [R, D]
    by_keys: tuple[Array, Arrays],  # of keys, and of the means of each level, to be added to
    by_values: tuple[Array, Arrays],
) -> None:
    """Add the gradients of what ``read_rows`` reads."""
    work = _room(arrays, opened, read, room, len(spans))
    score, kept, row, power, ends = work[0][0], work[0][2], work[1][1], work[1][2], work[4]
    for token in range(len(query)):
        own, come, out = query[token], grad[token], by_query[token]
        number = _descend(own, met[token], spans, arrays, flags, opened[token], read[token], work)
        out[:] = 0
        take_exp(kept[:number], lse[token], power)
        for level in range(len(spans) - 1, -1, -1):
            first, last = ends[level], ends[level - 1] if level else number
            inside, part, by_score = row[first:last], kept[first:last], score[: last - first]
            keys = arrays[7][level - 1] if level else arrays[0]
            values = arrays[8][level - 1] if level else arrays[1]
            score_rows(come, values, inside, by_score)
            for place in range(last - first):
                by_score[place] = part[place] * (by_score[place] - delta[token])
            add_rows(out, by_score, keys, inside)
            _spread(by_score, own, by_keys[1][level - 1] if level else by_keys[0], inside)
            _spread(part, come, by_values[1][level - 1] if level else by_values[0], inside)
