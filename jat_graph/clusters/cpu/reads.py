"""What tokens read, in numba: what they meet, then cluster by cluster; or all of the last one."""

from __future__ import annotations

import numba
import numpy as np

from jat_graph.clusters.cpu import vectors
from jat_graph.clusters.cpu.descent import Arrays, Spans, begin, room_for
from jat_graph.clusters.cpu.emitter import LANES, ROWS
from jat_graph.clusters.cpu.loops import add_rows, padded, score_rows
from jat_graph.kernels.compiling import ANY_ORDER, Array, loop


@loop(**ANY_ORDER)
def begin_rows(
    query: Array,  # scaled, [R, D]
    met: Array,  # scores of near keys, and of the nodes of each level that are met, [R, columns]
    near: int,  # columns of near keys
    spans: Spans,
    arrays: Arrays,
    margin: float,  # how far below the best score nodes are still opened and read
    flags: tuple[bool, bool],  # whether the choice is given, and nodes stand for what is not read
    opened: Array,  # nodes of each level above the first, -1 for none, [R, levels, groups]
    read: Array,  # clusters, [R, clusters]
    totals: Array,  # values of kept children, [R, Dv]
    weight: Array,  # sums of weights, to be filled in, [R]
    shift: Array,  # by how much less scores the weights are e to, [R]
) -> None:
    """Let tokens descend a tree, and turn what they met into weights."""
    room = room_for(query, spans[0], opened.shape[2])
    for row in range(len(query)):
        weight[row], shift[row] = begin(
            query, row, met, row, near, spans, arrays, margin, flags, opened, read, totals, room
        )


@loop(**ANY_ORDER)
def _read_steep(
    query: Array, row: int, keys: Array, values: Array, rows: Array, totals: Array, weight: Array,
    shift: Array,
) -> None:  # fmt: skip
    """Add some values to a token's total, whatever their scores, and adapt its sum and shift."""
    score = np.empty((1, len(rows)), query.dtype)
    score_rows(query, row, keys, rows, len(rows), score, 0)
    most = shift[row]
    for place in range(len(rows)):
        most = max(most, score[0, place])
    if most > shift[row]:
        less = np.exp(shift[row] - most)
        weight[row] *= less
        for column in range(totals.shape[1]):
            totals[row, column] *= less
    for place in range(len(rows)):
        score[0, place] = np.exp(score[0, place] - most)
        weight[row] += score[0, place]
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
    totals: Array, weight: Array, shift: Array,
) -> None:  # fmt: skip
    """Add values of the clusters that tokens read, cluster by cluster, and divide by the sums.

    Shifts become the logarithms of the sums.
    """
    rows, starts = by_node(read, len(members))
    even = query.shape[1] % LANES + totals.shape[1] % LANES + members.shape[1] % ROWS == 0
    step = ROWS if even else members.shape[1]
    for node in range(len(members)):
        soon = min(node + 1, len(members) - 1)
        for place in range(members.shape[1]):
            vectors.fetch(keys, members[soon, place])
            vectors.fetch(values, members[soon, place])
        for begun in range(0, members.shape[1], step):
            for item in range(starts[node], starts[node + 1]):
                row, more = rows[item], query.dtype.type(-1)
                if even:
                    more = vectors.read_eight(
                        totals, query, row, keys, values, members, node, begun, shift[row]
                    )
                if more < 0:
                    own = members[node, begun : begun + step]
                    _read_steep(query, row, keys, values, own, totals, weight, shift)
                else:
                    weight[row] += more
    for row in range(len(query)):
        for column in range(totals.shape[1]):
            totals[row, column] /= weight[row]
        shift[row] += np.log(weight[row])


@loop(parallel=True, **ANY_ORDER)
def read_last(  # noqa: C901  # no tuple comes in or out of a parallel loop
    query: Array,  # of one token, [H, D]
    keys: Array,  # of all, [Hkv, n, D]
    values: Array,
    sinks: int,
    first: int,  # near key
    nodes: Array,  # of each level the first and the end of those that are met
    bias: Array,  # logarithms of their number of keys
    arrays: Arrays,  # of all heads of keys
    steps: Array,  # integers from 0 on
    margin: float,  # how far below the best score nodes are still opened and read
    rest: bool,
    opened: Array,  # to be filled in, [H, levels, groups]
    read: Array,  # [H, clusters]
    output: Array,  # [H, Dv]
    lse: Array,  # [H]
) -> None:
    """Let the last token read all at once: for few rows no product of matrices is worth it."""
    times, near = len(query) // len(keys), keys.shape[1] - first
    exact, table = padded(sinks + near), np.empty((len(nodes), 3), np.int64)
    columns = exact
    for level in range(len(table)):
        table[level, 0], table[level, 1:] = columns, nodes[level]
        columns += padded(table[level, 2] - table[level, 1])
    spans = table, bias
    # No tuple comes into a parallel loop.
    (a, b, c, d), (e, f, g, h), (i, j, k, m), (s, t, u, v) = arrays
    even = query.shape[1] % LANES + output.shape[1] % LANES + a.shape[2] % ROWS == 0
    step = ROWS if even else a.shape[2]
    weight = np.empty(len(query), query.dtype)
    for row in numba.prange(len(query)):
        head = row // times
        own, its = keys[head], values[head]
        parts = (
            (a[head], b[head], c[head], d[head]), (e[head], f[head], g[head], h[head]),
            (i[head], j[head], k[head], m[head]), (s[head], t[head], u[head], v[head]),
        )  # fmt: skip
        room = room_for(query, table, opened.shape[2])
        met = np.full((1, columns), -np.inf, query.dtype)
        score_rows(query, row, own, steps, sinks, met, 0)
        score_rows(query, row, own, steps[first:], near, met, 0, sinks)
        for level in range(len(table)):
            column, start, stop = table[level]
            score_rows(query, row, parts[1][level], steps[start:], stop - start, met, 0, column)
        output[row] = 0
        weight[row], lse[row] = begin(
            query,
            row,
            met,
            0,
            exact,
            spans,
            parts,
            query.dtype.type(margin),
            (False, rest),
            opened,
            read,
            output,
            room,
        )
        add_rows(output, row, met, 0, 0, its, steps, 0, sinks)
        add_rows(output, row, met, 0, sinks, its, steps, first, near)
        for level in range(len(table) if rest else 0):
            column, start, stop = table[level]
            add_rows(output, row, met, 0, column, parts[2][level], steps, start, stop - start)
        own, its = own[sinks:], its[sinks:]
        for place in range(read.shape[1]):
            if read[row, place] < 0:
                break
            node, soon = read[row, place], read[row, min(place + 1, read.shape[1] - 1)]
            for item in range(a.shape[2] if soon >= 0 else 0):
                vectors.fetch(own, a[head, soon, item])
                vectors.fetch(its, a[head, soon, item])
            for begun in range(0, a.shape[2], step):
                more = query.dtype.type(-1)
                if even:
                    more = vectors.read_eight(
                        output, query, row, own, its, parts[0][0], node, begun, lse[row]
                    )
                if more < 0:
                    some = parts[0][0][node, begun : begun + step]
                    _read_steep(query, row, own, its, some, output, weight, lse)
                else:
                    weight[row] += more
        for column in range(output.shape[1]):
            output[row, column] /= weight[row]
        lse[row] += np.log(weight[row])
