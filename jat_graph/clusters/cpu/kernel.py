"""Choosing and reading on a CPU: matrix products for what all tokens meet, loops for the rest."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes, by_head, wide
from jat_graph.clusters.cpu.descent import choose_rows
from jat_graph.clusters.cpu.loops import padded
from jat_graph.clusters.cpu.reads import begin_rows, read_clusters, read_last
from jat_graph.clusters.tree import LEVELS, SINKS
from jat_graph.kernels.compiling import run_tasks

FEW = 64  # rows, for which no thread is started
MOST = 256  # tokens of a run


class Met(NamedTuple):
    """What the tokens of a run score first: near keys, and nodes of each level, side by side."""

    sinks: int
    near: slice  # keys, behind the sinks
    width: int  # number of both
    spans: np.ndarray[Any, Any]  # of each level a column, its first and last such nodes
    bias: np.ndarray[Any, Any]  # logarithms of their numbers of keys
    columns: int

    @classmethod
    def of(cls, choice: Choice, seen: int, last: int, dtype: Any) -> Met:
        """Return what tokens that see so many clusters meet, near keys up to ``last``."""
        near = slice(SINKS + seen * choice.tree.keys(0) if seen else 0, last)
        sinks, spans = SINKS if seen else 0, list[tuple[int, int, int]]()
        width = sinks + near.stop - near.start
        columns = padded(width)
        for start, stop in choice.tree.spans(seen, choice.top):
            spans.append((columns, start, stop))
            columns += padded(stop - start)
        bias = [math.log(choice.tree.keys(level)) for level in range(len(spans))]
        table = np.array(spans, dtype=np.int64).reshape(-1, 3)
        return cls(sinks, near, width, table, np.array(bias, dtype=dtype), columns)


def numbers(x: Tensor) -> Any:
    """Return an array of a tensor; of bfloat16, which numpy does not have, its bits."""
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def levels_of(
    key: Tensor, value: Tensor, choice: Choice, nodes: Nodes
) -> tuple[tuple[Tensor, ...], ...]:
    """Return children, means of keys and values, and spread of each level that there can be.

    They are in the precision of keys and values. Loops are compiled once for any number of levels:
    those that are not there have no nodes.
    """
    members = choice.tree.members
    none = [choice.read.new_empty(len(key), 0, choice.tree.keys(0)), key[:, :0], value[:, :0]]
    none.append(wide(key[:, :0, 0]))
    parts = zip((members, *nodes[:3]), none, strict=True)
    more = LEVELS - len(members)
    return tuple(
        (*(x.to(nothing.dtype).contiguous() for x in part), *[nothing] * more)
        for part, nothing in parts
    )


class Head:
    """A head of keys and its queries: what they meet, and the arrays that loops run over."""

    def __init__(
        self,
        query: Tensor,  # scaled, [groups, T, D]
        key: Tensor,  # [n, D]
        value: Tensor,  # [n, Dv]
        choice: Choice,
        levels: tuple[tuple[Tensor, ...], ...],
        head: int,
    ) -> None:
        key, value = key.contiguous(), value.contiguous()  # loops know no other rows
        self.query, self.key, self.value, self.choice = query, key, value, choice
        members, self.means, self.value_means, spread = ([x[head] for x in part] for part in levels)
        self.members: Any = members[0].numpy()
        self.exact: Any = key[SINKS:].numpy(), value[SINKS:].numpy()
        parts = members, self.means, self.value_means, spread
        self.arrays: Any = tuple(tuple(x.numpy() for x in part) for part in parts)

    def runs(self, start: int) -> list[tuple[slice, Met]]:
        """Return runs of tokens from one on, and what they meet, the same for all heads."""
        length, dtype, causal = len(self.key), self.exact[0].dtype, self.choice.causal
        first = length - self.query.size(1)
        return [
            (rows, Met.of(self.choice, seen, first + rows.stop if causal else length, dtype))
            for rows, seen in self.choice.runs(MOST)
            if rows.start >= start
        ]

    def rows(self, x: Tensor, tokens: slice) -> Tensor:  # [groups, T, …] -> [R, …]
        """Return what belongs to some tokens, a contiguous copy."""
        return x[:, tokens].flatten(0, 1).contiguous()

    def met(self, met: Met, keys: bool) -> list[tuple[slice, Tensor]]:
        """Return where scores of what is met stand, and what that is, of keys or of values."""
        means, rows = (self.means, self.key) if keys else (self.value_means, self.value)
        near = torch.cat([rows[: met.sinks], rows[met.near]]) if met.sinks else rows[met.near]
        parts, below = [(slice(0, met.width), near)], means if self.choice.rest or keys else []
        for x, (first, start, stop) in zip(below, met.spans.tolist(), strict=False):
            parts.append((slice(first, first + stop - start), x[start:stop]))
        return parts

    def scores(self, query: Tensor, tokens: int, met: Met) -> Tensor:  # [R, columns]
        """Return the scores of all that some tokens meet, and -inf between its parts."""
        scores = query.new_empty(len(query), met.columns)
        for columns, keys in self.met(met, keys=True):
            torch.mm(query, keys.mT, out=scores[:, columns])
            scores[:, columns.stop : columns.start + padded(len(keys))] = -torch.inf
        if not self.choice.causal:
            return scores
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu_(1)
        own = scores.view(len(self.query), tokens, -1)[..., met.width - tokens : met.width]
        own.masked_fill_(later, -torch.inf)
        return scores

    def put(self, total: Tensor, tokens: slice, part: Tensor) -> None:
        """Write what belongs to some tokens, unless it is there: of one query head it is a view."""
        own = total[:, tokens]
        if own.data_ptr() != part.data_ptr():
            own.copy_(part.view(own.shape))


def heads_of(query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes) -> list[Head]:
    """Return the heads of keys, each with its queries."""
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
        _read(query, wide(key), wide(value), choice, nodes, chosen, sums)
    return output, sums[1]


def _read_last(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, sums: list[Tensor]
) -> None:
    """Choose and read for one token, all of it in loops, which widen what they read."""
    # Autocast leaves them of two types, and numba knows no numbers of float16.
    if key.dtype != value.dtype or key.dtype == torch.float16:
        key, value = wide(key), wide(value)
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
    heads = heads_of(query, key, value, choice, nodes)
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

    dense = dense_rows(query, key, value, choice) if sums else 0
    if dense:
        _read_densely(choice.causal, *(x[:, :dense] for x in (query, key, value, *sums)))
    pieces = [(number, *run) for number in range(len(heads)) for run in heads[0].runs(dense)]
    list(map(work, pieces) if query[..., 0].numel() <= FEW else run_tasks(work, pieces))


def dense_rows(query: Tensor, key: Tensor, value: Tensor, choice: Choice) -> int:
    """Return how many first tokens SDPA's kernel reads: those that see no cluster, or all."""
    number = int((choice.seen == 0).sum())
    if not choice.causal and number < len(choice.seen):
        return 0
    fits = query.size(1) == key.size(1) and key.size(-1) == value.size(-1)
    return number if fits and number > MOST else 0


def _read_densely(causal: bool, query: Tensor, key: Tensor, value: Tensor, *sums: Tensor) -> None:
    """Let tokens read all, or all before them."""
    parts = (x.repeat_interleave(len(query) // len(key), 0)[None] for x in (key, value))
    # SDPA's own kernel, called by its name, as it returns the sums that backward needs.
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    found = attend(query[None], *parts, 0.0, causal, scale=1.0)
    for total, part in zip(sums, found, strict=False):
        total.copy_(part[0])
