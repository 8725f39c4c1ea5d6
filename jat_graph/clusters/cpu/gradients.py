"""The gradients of what tokens read, in numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from jat_graph.clusters.cpu import vectors
from jat_graph.clusters.cpu.descent import KEPT, Arrays, Spans, descend, open_top, room_for
from jat_graph.clusters.cpu.emitter import LANES, ROWS
from jat_graph.clusters.cpu.loops import add_rows, padded, score_rows, spread_rows
from jat_graph.clusters.cpu.reads import by_node
from jat_graph.kernels.compiling import ANY_ORDER, Array, loop


@loop(inline="always", **ANY_ORDER)
def _differentiate(
    query: Array, grad: Array, row: int, pairs: tuple[Array, Array], totals: tuple[Array, Array],
    rows: Array, start: int, number: int, weights: Array, of: int, delta: float, by_query: Array,
    by_score: Array,
) -> None:  # fmt: skip
    """Add the gradients of a token that reads listed keys and values by some weights."""
    score_rows(grad, row, pairs[1], rows[start:], number, by_score, 0)
    for place in range(number):
        by_score[0, place] = weights[of, start + place] * (by_score[0, place] - delta)
    add_rows(by_query, row, by_score, 0, 0, pairs[0], rows, start, number)
    spread_rows(totals[0], rows, start, number, by_score, 0, 0, query, row)
    spread_rows(totals[1], rows, start, number, weights, of, start, grad, row)


@loop(**ANY_ORDER)
def differentiate_rows(
    query: Array,
    met: Array,
    near: int,
    spans: Spans,
    arrays: Arrays,
    rest: bool,
    opened: Array,
    read: Array,
    lse: Array,  # [R]
    grad: Array,  # of outputs, [R, Dv]
    delta: Array,  # its product with the output, [R]
    by_query: Array,  # to be added to, [R, D]
    by_means: tuple[Any, Any],  # of keys' means of each level, and of values'
) -> None:
    """Turn what tokens met into weights, and add the gradients of the children that they keep."""
    table, bias = spans
    room, flags = room_for(query, table, opened.shape[2]), (True, rest)
    scores, items, ends, _, _ = room
    top, none = len(table) - 1, query.dtype.type(0)
    by_score = np.empty((1, scores.shape[1]), query.dtype)
    for row in range(len(query)):
        if top >= 0:
            goal = opened[row, top - 1] if top > 0 else read[row]
            spread = arrays[3][top]
            open_top(
                met, row, table[top], spread, none, none, True, rest, goal, none, scores, items
            )
        if top > 0:
            descend(query, row, met, row, table, arrays, none, none, flags, opened, read, room)
        vectors.take_exp(met, row, 0, near, lse[row])
        for level in range(len(table) if rest else 0):
            column, start, stop = table[level]
            shift = lse[row] - bias[level]
            vectors.take_exp(met, row, column, padded(stop - start), shift)
            first, kept = ends[level + 1], ends[level] - ends[level + 1]
            for place in range(first, first + kept):
                scores[KEPT, place] = np.exp(scores[KEPT, place] - shift)
            if kept:
                _differentiate(
                    query, grad, row, (arrays[1][level], arrays[2][level]),
                    (by_means[0][level], by_means[1][level]), items[KEPT], first, kept, scores,
                    KEPT, delta[row], by_query, by_score,
                )  # fmt: skip


@loop(**ANY_ORDER)
def differentiate_clusters(
    query: Array, keys: Array, values: Array, members: Array, read: Array, lse: Array, grad: Array,
    delta: Array, by_query: Array, by_key: Array, by_value: Array,
) -> None:  # fmt: skip
    """Add the gradients of tokens that read clusters, cluster by cluster."""
    rows, starts = by_node(read, len(members))
    size = members.shape[1]
    weight, by_score = np.empty((1, padded(size)), query.dtype), np.empty((1, size), query.dtype)
    even = query.shape[1] % LANES + grad.shape[1] % LANES + size % ROWS == 0
    for node in range(len(members)):
        for begun in range(0, size if even else 0, ROWS):
            for item in range(starts[node], starts[node + 1]):
                row = rows[item]
                vectors.differentiate_eight(
                    query, grad, row, keys, values, members, node, begun, lse[row], delta[row],
                    by_query, by_key, by_value,
                )  # fmt: skip
        for item in range(starts[node], starts[node] if even else starts[node + 1]):
            row, own = rows[item], members[node]
            score_rows(query, row, keys, own, size, weight, 0)
            weight[0, size:] = -np.inf
            vectors.take_exp(weight, 0, 0, weight.shape[1], lse[row])
            _differentiate(
                query, grad, row, (keys, values), (by_key, by_value), own, 0, size, weight, 0,
                delta[row], by_query, by_score,
            )  # fmt: skip
