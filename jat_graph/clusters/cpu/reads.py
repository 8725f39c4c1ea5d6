"""What tokens read, in numba: what they meet, then cluster by cluster; or all of the last one."""

from __future__ import annotations

import numba
import numpy as np

from jat_graph.clusters.cpu import vectors
from jat_graph.clusters.cpu.descent import Arrays, Drawn, Met, begin, room_for
from jat_graph.clusters.cpu.emitter import LANES, ROWS
from jat_graph.clusters.cpu.loops import add_rows, padded, score_rows
from jat_graph.clusters.tree import SINKS
from jat_graph.core.compiling import ANY_ORDER, Array, loop


@loop(**ANY_ORDER)
def begin_rows(
    query: Array,  # scaled, [R, D]
    scores: Array,  # of near keys, and of the nodes that are met, [R, columns]
    near: int,  # columns of near keys
    met: Met,
    arrays: Arrays,
    margin: float,  # how far below the best score nodes are still opened and read
    flags: tuple[bool, bool],  # whether the choice is given, and nodes stand for what is not read
    opened: Array,  # nodes of each level above the first, -1 for none, [R, levels, groups]
    read: Array,  # clusters, [R, clusters]
    totals: Array,  # values of kept children, [R, Dv]
    weight: Array,  # sums of weights, to be filled in, [R]
    shift: Array,  # by how much less scores the weights are e to, [R]
    names: Array,  # of columns, [1, columns]
    drawn: Drawn,
) -> None:
    """Let tokens descend a tree, and turn what they met into weights."""
    room = room_for(query, met, opened.shape[2])
    seeds, most, factor = drawn
    for row in range(len(query)):
        weight[row], shift[row] = begin(
            query, row, scores, row, near, met, arrays, margin, flags, opened, read, totals, room,
            drawn,
        )  # fmt: skip
        if factor > 0:
            vectors.drop(scores, row, names, 0, scores.shape[1], seeds[row], most, factor)


@loop(**ANY_ORDER)
def _read_steep(
    query: Array, row: int, keys: Array, values: Array, rows: Array, totals: Array, weight: Array,
    shift: Array, drawn: Drawn,
) -> None:  # fmt: skip
    """Add some values to a token's total, whatever their scores, and adapt its sum and shift."""
    size = padded(len(rows))
    seeds, least, factor = drawn
    score, names = np.empty((1, size), query.dtype), np.empty((1, size), np.int32)
    score_rows(query, row, keys, rows, len(rows), score, 0)
    most = shift[row]
    for place in range(len(rows)):
        most = max(most, score[0, place])
        names[0, place] = rows[place]
    if most > shift[row]:
        less = np.exp(shift[row] - most)
        weight[row] *= less
        for column in range(totals.shape[1]):
            totals[row, column] *= less
    for place in range(len(rows)):
        score[0, place] = np.exp(score[0, place] - most)
        weight[row] += score[0, place]
    if factor > 0:
        vectors.drop(score, 0, names, 0, size, seeds[row], least, factor)
    add_rows(totals, row, score, 0, 0, values, rows, 0, len(rows))
    shift[row] = most


@loop(**ANY_ORDER)
def by_node(read: Array, nodes: int) -> tuple[Array, Array]:
    """Return which tokens read each cluster, one after another, and where those of each begin."""
    starts = np.zeros(nodes + 2, np.int64)
    for row in range(len(read)):
        for place in range(read.shape[1]):
            starts[read[row, place] + 2] += 1  # of none, -1, at 1
    starts[1] = 0
    for node in range(nodes):
        starts[node + 2] += starts[node + 1]
    rows = np.empty(starts[nodes + 1], np.int32)
    for row in range(len(read)):
        for place in range(read.shape[1]):
            node = read[row, place]
            if node < 0:
                break
            rows[starts[node + 1]] = row
            starts[node + 1] += 1
    return rows, starts


@loop(**ANY_ORDER)
def read_clusters(
    query: Array, keys: Array, values: Array, members: Array, read: Array,
    totals: Array, weight: Array, shift: Array, drawn: Drawn,
) -> None:  # fmt: skip
    """Add values of the clusters that tokens read, cluster by cluster, and divide by the sums.

    Shifts become the logarithms of the sums.
    """
    rows, starts = by_node(read, len(members))
    seeds, most, factor = drawn
    even = query.shape[1] % LANES + totals.shape[1] % LANES + members.shape[1] % ROWS == 0
    step = ROWS if even else members.shape[1]
    for node in range(len(members)):
        soon = min(node + 1, len(members) - 1)
        for place in range(members.shape[1]):
            vectors.fetch(keys, members[soon, place])
            vectors.fetch(values, members[soon, place])
        for begun in range(0, members.shape[1], step):
            for item in range(starts[node], starts[node + 1]):
                row = rows[item]
                more = query.dtype.type(-1)
                if even:
                    more = vectors.read_eight(
                        totals, query, row, keys, values, members, node, begun, shift[row],
                        seeds[row], most, factor,
                    )  # fmt: skip
                if more < 0:
                    own = members[node, begun : begun + step]
                    _read_steep(query, row, keys, values, own, totals, weight, shift, drawn)
                else:
                    weight[row] += more
    for row in range(len(query)):
        for column in range(totals.shape[1]):
            totals[row, column] /= weight[row]
        shift[row] += np.log(weight[row])


@loop(parallel=True, **ANY_ORDER)
def read_last(  # no tuple comes in or out of a parallel loop
    query: Array,  # of one token, [H, D]
    keys: Array,  # of all, [Hkv, n, D]
    values: Array,
    first: int,  # near key
    nodes: int,  # that are met
    bias: Array,  # logarithms of the number of keys of a node, of each level
    members: Array,  # keys of clusters, [Hkv, clusters, size]
    arrays: Arrays,  # of all heads of keys
    steps: Array,  # integers from 0 on
    margin: float,  # how far below the best score nodes are still opened and read
    flags: tuple[bool, bool],  # as of `begin_rows`
    opened: Array,  # to be filled in, [H, levels, groups]
    read: Array,  # [H, clusters]
    output: Array,  # [H, Dv]
    lse: Array,  # [H]
) -> None:
    """Let the last token read all at once: for few rows no product of matrices is worth it."""
    times = len(query) // len(keys)
    near = keys.shape[1] - first
    top = opened.shape[1]
    column = padded(SINKS + near)
    # No tuple comes into a parallel loop.
    (b, c, d, e), (f, g, h, i), (s, t, u, v) = arrays
    chosen, rest = flags
    even = query.shape[1] % LANES + output.shape[1] % LANES + members.shape[2] % ROWS == 0
    step = ROWS if even else members.shape[2]
    weight = np.empty(len(query), query.dtype)
    scores = np.empty((len(query), column + padded(nodes)), query.dtype)
    # Neither constants nor unsigned rows: numba would compile anew what it has for other callers.
    start = int(np.int64(0))
    sinks = int(np.int64(SINKS))
    for number in numba.prange(len(query)):
        row = int(np.int64(number))
        head = row // times
        own, its, clusters = keys[head, ::1], values[head, ::1], members[head]  # as with room
        parts = (
            (b[head], c[head], d[head], e[head]), (f[head], g[head], h[head], i[head]),
            (s[head], t[head], u[head], v[head]),
        )  # fmt: skip
        met = ((column, nodes, top), bias)
        drawn = (np.zeros(len(query), np.uint32), start, query.dtype.type(0))
        room = room_for(query, met, opened.shape[2])
        scores[row] = -np.inf
        score_rows(query, row, own, steps, sinks, scores, row)
        score_rows(query, row, own, steps[first:], near, scores, row, sinks)
        score_rows(query, row, parts[0][top], steps, nodes, scores, row, column)
        output[row] = 0
        weight[row], lse[row] = begin(
            query, row, scores, row, column, met, parts, query.dtype.type(margin), (chosen, rest),
            opened, read, output, room, drawn,
        )  # fmt: skip
        add_rows(output, row, scores, row, start, its, steps, start, sinks)
        add_rows(output, row, scores, row, sinks, its, steps, first, near)
        if rest:
            add_rows(output, row, scores, row, column, parts[1][top], steps, start, nodes)
        own, its = own[SINKS:], its[SINKS:]
        for place in range(read.shape[1]):
            if read[row, place] < 0:
                break
            node = read[row, place]
            soon = read[row, min(place + 1, read.shape[1] - 1)]
            for item in range(members.shape[2] if soon >= 0 else 0):
                vectors.fetch(own, clusters[soon, item])
                vectors.fetch(its, clusters[soon, item])
            for begun in range(0, members.shape[2], step):
                more = query.dtype.type(-1)
                if even:
                    more = vectors.read_eight(
                        output, query, row, own, its, clusters, node, begun, lse[row], drawn[0][0],
                        start, drawn[2],
                    )  # fmt: skip
                if more < 0:
                    some = clusters[node, begun : begun + step]
                    _read_steep(query, row, own, its, some, output, weight, lse, drawn)
                else:
                    weight[row] += more
        for feature in range(output.shape[1]):
            output[row, feature] /= weight[row]
        lse[row] += np.log(weight[row])
