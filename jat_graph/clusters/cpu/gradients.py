"""The gradients of what tokens read on a CPU: matrix products, and loops in numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes, by_head
from jat_graph.clusters.cpu import vectors
from jat_graph.clusters.cpu.descent import KEPT, Arrays, Spans, descend, open_top, room_for
from jat_graph.clusters.cpu.emitter import LANES, ROWS
from jat_graph.clusters.cpu.kernel import Head, Met, dense_rows, heads_of
from jat_graph.clusters.cpu.loops import add_rows, padded, score_rows, spread_rows
from jat_graph.clusters.cpu.reads import by_node
from jat_graph.clusters.tree import LEVELS, SINKS
from jat_graph.kernels.compiling import ANY_ORDER, Array, loop, run_tasks


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


def differentiate(
    grad: Tensor,  # of the output, [H, T, Dv]
    output: Tensor,
    lse: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    choice: Choice,
    nodes: Nodes,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Return the gradients of queries, keys and values, and those of the means of both."""
    heads, by_query = heads_of(query, key, value, choice, nodes), torch.zeros_like(query)
    rows = [grad, (grad * output).sum(-1), lse, choice.opened, choice.read, by_query]
    rows = [by_head(x, len(key)) for x in rows]
    dense = dense_rows(query, key, value, choice)
    runs = heads[0].runs(dense)

    def work(task: tuple[int, int]) -> list[Tensor]:
        number, half = task
        head = heads[number]
        parts = (head.key, head.value, *head.means, *head.value_means)
        totals = [torch.zeros_like(x) for x in parts]
        for tokens, met in runs[half::2]:
            _add(head, [x[number] for x in rows], tokens, met, totals)
        return totals

    tasks = [(number, half) for number in range(len(key)) for half in (0, 1)]
    found = list(run_tasks(work, tasks))
    halves = zip(found[::2], found[1::2], strict=True)
    summed = [[one.add_(other) for one, other in zip(*pair, strict=True)] for pair in halves]
    by_key, by_value, *means = (torch.stack(parts) for parts in zip(*summed, strict=True))
    if dense:
        _differentiate_densely(
            choice.causal,
            *(x[:, :dense] for x in (grad, output, lse, query, key, value)),
            *(x[:, :dense] for x in (by_query, by_key, by_value)),
        )
    levels = len(choice.tree.members)
    return by_query, by_key, by_value, means[:levels], means[LEVELS : LEVELS + levels]


def _add(head: Head, rows: list[Tensor], tokens: slice, met: Met, totals: list[Tensor]) -> None:
    """Add the gradients of some tokens, and write those of their queries."""
    own, rest = head.rows(head.query, tokens), head.choice.rest
    come, less, lse, opened, read = (head.rows(x, tokens) for x in rows[:-1])
    scores, out = head.scores(own, tokens.stop - tokens.start, met), torch.zeros_like(own)
    by_key, by_value = totals[:2]
    by_means, by_value_means = totals[2 : 2 + LEVELS], totals[2 + LEVELS :]
    query, found, shift, grad, delta, by_query = (
        x.numpy() for x in (own, scores, lse, come, less, out)
    )
    to_open, to_read = opened.numpy(), read.numpy()
    to_means: Any = tuple(tuple(x.numpy() for x in part) for part in (by_means, by_value_means))
    differentiate_rows(
        query, found, padded(met.width), (met.spans, met.bias), head.arrays, rest, to_open, to_read,
        shift, grad, delta, by_query, to_means,
    )  # fmt: skip
    pairs = zip(head.met(met, keys=True), head.met(met, keys=False), strict=False)
    for level, ((columns, keys), (_, values)) in enumerate(pairs, -1):
        part = scores[:, columns]
        by_score = (come @ values.mT).sub_(less.unsqueeze(-1)).mul_(part)
        out.addmm_(by_score, keys)
        spread = by_score.mT @ own, part.mT @ come
        if level < 0:
            for total, one in zip((by_key, by_value), spread, strict=True):
                total[: met.sinks] += one[: met.sinks]
                total[met.near] += one[met.sinks :]
            continue
        _, start, stop = met.spans[level]
        for total, one in zip((by_means[level], by_value_means[level]), spread, strict=True):
            total[start:stop] += one
    exact, exact_values = head.exact
    to_keys, to_values = by_key[SINKS:].numpy(), by_value[SINKS:].numpy()
    differentiate_clusters(
        query, exact, exact_values, head.members, to_read, shift, grad, delta, by_query, to_keys,
        to_values,
    )  # fmt: skip
    head.put(rows[-1], tokens, out)


def _differentiate_densely(
    causal: bool, grad: Tensor, output: Tensor, lse: Tensor, query: Tensor, key: Tensor,
    value: Tensor, by_query: Tensor, by_key: Tensor, by_value: Tensor,
) -> None:  # fmt: skip
    """Add the gradients of tokens that read all, or all before them."""
    times = len(query) // len(key)
    parts = [x.repeat_interleave(times, 0)[None] for x in (key, value)]
    differentiate = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    given = grad[None], query[None], *parts, output[None], lse[None]
    found = differentiate(*given, 0.0, causal, scale=1.0)
    by_query += found[0][0]
    for total, part in zip((by_key, by_value), found[1:], strict=True):
        total += by_head(part[0], len(key)).sum(1)
