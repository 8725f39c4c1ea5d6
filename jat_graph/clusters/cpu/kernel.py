"""Choosing and reading on a CPU: matrix products for what all tokens meet, loops for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes, by_head, wide
from jat_graph.clusters.cpu.descent import begin_rows, choose_rows
from jat_graph.clusters.cpu.gradients import differentiate_clusters, differentiate_rows
from jat_graph.clusters.cpu.heads import MOST, Head, Met, levels_of, numbers
from jat_graph.clusters.cpu.loops import padded
from jat_graph.clusters.cpu.reads import read_clusters, read_last
from jat_graph.clusters.tree import LEVELS, SINKS
from jat_graph.kernels.threads import run_tasks

FEW = 64  # rows, for which no thread is started


def _heads(query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes) -> list[Head]:
    own, levels = by_head(query, len(key)), levels_of(key, value, choice, nodes)
    return [Head(own[h], key[h], value[h], choice, levels, h) for h in range(len(key))]


def choose(query: Tensor, key: Tensor, empty: Choice, nodes: Nodes) -> Choice:
    """Let tokens descend the tree, which fills in a choice; the query is scaled."""
    _read(query, key, key, empty, nodes, False, [])
    return empty


def read(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, chosen: bool = True
) -> tuple[Tensor, Tensor]:  # [H, T, Dv], [H, T]
    """Return what tokens read, and the logarithm of the sum of e to their scores."""
    output = query.new_empty(*query.shape[:2], value.size(-1))
    sums = [output, query.new_empty(query.shape[:2])]
    if query.size(1) == 1 and not chosen and choice.seen[0] > 0:
        _read_last(query, key, value, choice, nodes, sums)
    else:
        _read(query, wide(key), wide(value), choice, nodes.wide(), chosen, sums)
    return output, sums[1]


def _read_last(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, sums: list[Tensor]
) -> None:
    """Choose and read for one token, all of it in loops, which widen what they read."""
    # Autocast leaves them of two types, and numba knows no numbers of float16.
    if key.dtype != value.dtype or key.dtype == torch.float16:
        key, value, nodes = wide(key), wide(value), nodes.wide()
    own, seen = query[:, 0].numpy(), int(choice.seen[0])
    ready = {} if nodes.ready is None else nodes.ready
    if seen not in ready:
        met = Met.of(choice, seen, key.size(1), own.dtype)
        levels = tuple(
            tuple(numbers(x) for x in part) for part in levels_of(key, value, choice, nodes)
        )
        steps = np.arange(key.size(1) + choice.tree.segment, dtype=np.int32)  # till more are seen
        ready.clear()
        ready[seen] = met.sinks, met.near.start, met.spans[:, 1:], met.bias, levels, steps
    sinks, start, spans, bias, levels, steps = ready[seen]
    rows = [x if x.stride(2) == 1 else x.contiguous() for x in (key, value)]
    keys, values = map(numbers, rows)
    opened, read, output, lse = (x[:, 0].numpy() for x in (choice.opened, choice.read, *sums))
    given = own, keys, values, sinks, start, spans, bias, levels, steps, choice.margin, choice.rest
    read_last(*given, opened, read, output, lse)


def _read(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, chosen: bool,
    sums: list[Tensor],
) -> None:  # fmt: skip
    """Choose, or read, or both."""
    heads = _heads(query, key, value, choice, nodes)
    totals = [by_head(x, len(key)) for x in (choice.opened, choice.read, *sums)]

    def work(piece: tuple[int, slice, Met]) -> None:
        number, tokens, met = piece
        head, (opened, picked, *outputs) = heads[number], [x[number] for x in totals]
        own = head.rows(head.query, tokens)
        scores = head.scores(own, tokens.stop - tokens.start, met)
        places = [head.rows(x, tokens) for x in (opened, picked)]
        total, sums = own.new_zeros(len(own), value.size(-1)), own.new_empty(2, len(own))
        query, found, weight, shift = (x.numpy() for x in (own, scores, *sums))
        to_open, to_read, reading = (x.numpy() for x in (*places, total))
        spans, flags = (met.spans, met.bias), (chosen, choice.rest)
        near, margin = padded(met.width), found.dtype.type(choice.margin)
        if outputs:
            begin_rows(
                query, found, near, spans, head.arrays, margin, flags, to_open, to_read, reading,
                weight, shift,
            )  # fmt: skip
        else:
            choose_rows(query, found, near, spans, head.arrays, margin, to_open, to_read)
        if not chosen:
            head.put(opened, tokens, places[0])
            head.put(picked, tokens, places[1])
        if not outputs:
            return
        for columns, values in head.met(met, keys=False):
            total.addmm_(scores[:, columns], values)
        keys, values = head.exact
        read_clusters(query, keys, values, head.members, to_read, reading, weight, shift)
        head.put(outputs[0], tokens, total)
        head.put(outputs[1], tokens, sums[1])

    dense = _read_densely(query, key, value, choice, sums) if sums else 0
    runs = [[run for run in head.runs() if run[0].start >= dense] for head in heads]
    pieces = [(number, *run) for number, own in enumerate(runs) for run in own]
    list(map(work, pieces) if query[..., 0].numel() <= FEW else run_tasks(work, pieces))


def _dense(query: Tensor, key: Tensor, value: Tensor, choice: Choice) -> int:
    """Return how many first tokens SDPA's kernel reads: those that see no segment."""
    number = int((choice.seen == 0).sum())
    fits = query.size(1) == key.size(1) and key.size(-1) == value.size(-1)
    return number if fits and number > MOST else 0


def _read_densely(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, sums: list[Tensor]
) -> int:
    """Let the first tokens, which see no segment, read all before them; return their number."""
    if number := _dense(query, key, value, choice):
        times = len(query) // len(key)
        parts = (x[:, :number].repeat_interleave(times, 0)[None] for x in (key, value))
        # SDPA's own kernel, called by its name, as it returns the sums that backward needs.
        attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        found = attend(query[None, :, :number], *parts, 0.0, True, scale=1.0)
        for total, part in zip(sums, found, strict=True):
            total[:, :number] = part[0]
    return number


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
    heads, by_query = _heads(query, key, value, choice, nodes), torch.zeros_like(query)
    rows = [grad, (grad * output).sum(-1), lse, choice.opened, choice.read, by_query]
    rows = [by_head(x, len(key)) for x in rows]
    dense = _dense(query, key, value, choice)

    def work(task: tuple[int, int]) -> list[Tensor]:
        number, half = task
        head = heads[number]
        parts = (head.key, head.value, *head.means, *head.value_means)
        totals = [torch.zeros_like(x) for x in parts]
        runs = [run for run in head.runs() if run[0].start >= dense]
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
    grad: Tensor, output: Tensor, lse: Tensor, query: Tensor, key: Tensor, value: Tensor,
    by_query: Tensor, by_key: Tensor, by_value: Tensor,
) -> None:  # fmt: skip
    """Add the gradients of tokens that read all before them."""
    times = len(query) // len(key)
    parts = [x.repeat_interleave(times, 0)[None] for x in (key, value)]
    differentiate = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    given = grad[None], query[None], *parts, output[None], lse[None]
    found = differentiate(*given, 0.0, True, scale=1.0)
    by_query += found[0][0]
    for total, part in zip((by_key, by_value), found[1:], strict=True):
        total += by_head(part[0], len(key)).sum(1)
