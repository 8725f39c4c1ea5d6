"""The gradients of what tokens read on a CPU: matrix products, and loops in numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes, by_head
from jat_graph.clusters.cpu import vectors
from jat_graph.clusters.cpu.descent import (
    KEPT,
    NAMES,
    Arrays,
    Drawn,
    Met,
    descend,
    open_top,
    room_for,
)
from jat_graph.clusters.cpu.emitter import LANES, ROWS
from jat_graph.clusters.cpu.kernel import NAMELESS, Head, Run, dense_rows, draws_of, heads_of
from jat_graph.clusters.cpu.loops import add_rows, padded, score_rows, spread_rows
from jat_graph.clusters.cpu.reads import by_node
from jat_graph.clusters.draws import Dropout, seeds_of
from jat_graph.clusters.tree import LEVELS, SINKS
from jat_graph.core.compiling import ANY_ORDER, Array, loop, run_tasks


@loop(inline="always", **ANY_ORDER)
def _differentiate(
    query: Array, grad: Array, row: int, pairs: tuple[Array, Array], totals: tuple[Array, Array],
    rows: Array, start: int, number: int, weights: Array, of: int, masks: Array, delta: float,
    by_query: Array, by_score: Array,
) -> None:  # fmt: skip
    """Add the gradients of a token that reads listed keys and values by some weights."""
    score_rows(grad, row, pairs[1], rows[start:], number, by_score, 0)
    for place in range(number):
        mask = masks[0, start + place]
        by_score[0, place] = weights[of, start + place] * (by_score[0, place] * mask - delta)
        weights[of, start + place] *= mask
    add_rows(by_query, row, by_score, 0, 0, pairs[0], rows, start, number)
    spread_rows(totals[0], rows, start, number, by_score, 0, 0, query, row)
    spread_rows(totals[1], rows, start, number, weights, of, start, grad, row)


@loop(**ANY_ORDER)
def differentiate_rows(
    query: Array,
    found: Array,
    near: int,
    met: Met,
    arrays: Arrays,
    rest: bool,
    opened: Array,
    read: Array,
    lse: Array,  # [R]
    grad: Array,  # of outputs, [R, Dv]
    delta: Array,  # its product with the output, [R]
    by_query: Array,  # to be added to, [R, D]
    by_means: tuple[Any, Any],  # of keys' means of each level, and of values'
    masks: Array,  # what columns are multiplied by in dropout, ones to be changed, [R, columns]
    names: Array,
    drawn: Drawn,
) -> None:
    """Turn what tokens met into weights, and add the gradients of the children that they keep."""
    (column, nodes, top), bias = met
    room = room_for(query, met, opened.shape[2])
    (scores, items, ends, _, _), (seeds, most, factor) = room, drawn
    none = query.dtype.type(0)
    number = 0
    by_score = np.empty((1, scores.shape[1]), query.dtype)
    mask = np.empty_like(scores)
    for row in range(len(query)):
        if nodes > 0:
            goal = opened[row, top - 1] if top > 0 else read[row]
            open_top(found, row, met, arrays[2], none, none, True, rest, goal, room)
            number = descend(query, row, top, arrays, none, none, (True, rest), opened, read, room)
        vectors.take_exp(found, row, 0, near, lse[row])
        if nodes > 0 and rest:
            vectors.take_exp(found, row, column, padded(nodes), lse[row] - bias[top])
        mask[0, : padded(number)] = 1
        if factor > 0:
            vectors.drop(masks, row, names, 0, masks.shape[1], seeds[row], most, factor)
            vectors.drop(mask, 0, items, NAMES, padded(number), seeds[row], most, factor)
        for level in range(top if number else 0):
            first = ends[level + 1]
            kept = ends[level] - ends[level + 1]
            for place in range(first, first + kept):
                scores[KEPT, place] = np.exp(scores[KEPT, place] - lse[row] + bias[level])
            if kept:
                _differentiate(
                    query, grad, row, (arrays[0][level], arrays[1][level]),
                    (by_means[0][level], by_means[1][level]), items[KEPT], first, kept, scores,
                    KEPT, mask, delta[row], by_query, by_score,
                )  # fmt: skip


@loop(**ANY_ORDER)
def differentiate_clusters(
    query: Array, keys: Array, values: Array, members: Array, read: Array, lse: Array, grad: Array,
    delta: Array, by_query: Array, by_key: Array, by_value: Array, drawn: Drawn,
) -> None:  # fmt: skip
    """Add the gradients of tokens that read clusters, cluster by cluster."""
    rows, starts = by_node(read, len(members))
    seeds, most, factor = drawn
    size = members.shape[1]
    weight = np.empty((1, padded(size)), query.dtype)
    by_score = np.empty((1, size), query.dtype)
    mask = np.ones_like(weight)
    names = np.empty(weight.shape, np.int32)
    even = query.shape[1] % LANES + grad.shape[1] % LANES + size % ROWS == 0
    for node in range(len(members)):
        for begun in range(0, size if even else 0, ROWS):
            for item in range(starts[node], starts[node + 1]):
                row = rows[item]
                vectors.differentiate_eight(
                    query, grad, row, keys, values, members, node, begun, lse[row], delta[row],
                    seeds[row], most, factor, by_query, by_key, by_value,
                )  # fmt: skip
        for item in range(starts[node], starts[node] if even else starts[node + 1]):
            row, own = rows[item], members[node]
            score_rows(query, row, keys, own, size, weight, 0)
            weight[0, size:] = -np.inf
            vectors.take_exp(weight, 0, 0, weight.shape[1], lse[row])
            if factor > 0:
                mask[:], names[0, :size] = 1, own
                vectors.drop(mask, 0, names, 0, weight.shape[1], seeds[row], most, factor)
            _differentiate(
                query, grad, row, (keys, values), (by_key, by_value), own, 0, size, weight, 0,
                mask, delta[row], by_query, by_score,
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
    kept: Dropout = None,
) -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Return the gradients of queries, keys and values, and those of the means of both."""
    heads = heads_of(query, key, value, choice, nodes)
    by_query = torch.zeros_like(query)
    seeds = seeds_of(kept[1], query) if kept else lse
    rows = [grad, (grad * output).sum(-1), lse, choice.opened, choice.read, seeds, by_query]
    rows = [by_head(x, len(key)) for x in rows]
    dense = dense_rows(query, key, value, choice) if kept is None else 0
    runs = heads[0].runs(dense)

    def work(task: tuple[int, int]) -> list[Tensor]:
        number, half = task
        head = heads[number]
        parts = (head.key, head.value, *head.means, *head.value_means)
        totals = [torch.zeros_like(x) for x in parts]
        for run in runs[half::2]:
            _add(head, [x[number] for x in rows], run, totals, kept)
        return totals

    tasks = [(number, half) for number in range(len(key)) for half in (0, 1)]
    found = list(run_tasks(work, tasks))
    halves = zip(found[::2], found[1::2], strict=True)
    summed = [[one.add_(other) for one, other in zip(*pair, strict=True)] for pair in halves]
    by_key, by_value, *means = (torch.stack(parts) for parts in zip(*summed, strict=True))
    if dense:
        _differentiate_densely(
            choice.rule.causal,
            *(x[:, :dense] for x in (grad, output, lse, query, key, value)),
            *(x[:, :dense] for x in (by_query, by_key, by_value)),
        )
    levels = len(nodes.keys)
    return by_query, by_key, by_value, means[:levels], means[LEVELS : LEVELS + levels]


def _add(head: Head, rows: list[Tensor], run: Run, totals: list[Tensor], kept: Dropout) -> None:
    """Add the gradients of some tokens, and write those of their queries."""
    own = head.rows(head.query, run)
    rest = head.choice.rule.rest
    come, less, lse, opened, read, seeds = (head.rows(x, run) for x in rows[:-1])
    scores = head.scores(own, run)
    out = torch.zeros_like(own)
    masks = torch.ones_like(scores) if kept else scores.new_ones(1, 1)
    by_key, by_value = totals[:2]
    by_means = totals[2 : 2 + LEVELS]
    by_value_means = totals[2 + LEVELS :]
    query, found, shift, grad, delta, by_query, dropped = (
        x.numpy() for x in (own, scores, lse, come, less, out, masks)
    )
    to_open = opened.numpy()
    to_read = read.numpy()
    drawn = draws_of(kept, seeds, query)
    to_means: Any = tuple(tuple(x.numpy() for x in part) for part in (by_means, by_value_means))
    differentiate_rows(
        query, found, padded(run.width), (run.place, head.bias), head.arrays, rest, to_open,
        to_read, shift, grad, delta, by_query, to_means, dropped,
        run.names() if kept else NAMELESS, drawn,
    )  # fmt: skip
    pairs = zip(head.met(run, keys=True), head.met(run, keys=False), strict=False)
    for is_near, ((columns, keys), (_, values)) in zip((True, False), pairs, strict=False):
        part = scores[:, columns]
        mask = masks[:, columns] if kept else masks
        by_score = (come @ values.mT).mul_(mask).sub_(less.unsqueeze(-1)).mul_(part)
        out.addmm_(by_score, keys)
        spread = by_score.mT @ own, (part * mask).mT @ come
        if is_near:
            for total, one in zip((by_key, by_value), spread, strict=True):
                total[: run.sinks] += one[: run.sinks]
                total[run.near] += one[run.sinks :]
            continue
        _, nodes, level = run.place
        by_node = by_means[level], by_value_means[level]
        for total, one in zip(by_node, spread, strict=True):
            total[:nodes] += one
    exact, exact_values = head.exact
    to_keys, to_values = by_key[SINKS:].numpy(), by_value[SINKS:].numpy()
    differentiate_clusters(
        query, exact, exact_values, head.members, to_read, shift, grad, delta, by_query, to_keys,
        to_values, drawn,
    )  # fmt: skip
    head.put(rows[-1], run, out)


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
