"""Choosing and reading on a CPU: matrix products for what all tokens meet, loops for the rest."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes, by_head, wide
from jat_graph.clusters.cpu.descent import choose_rows
from jat_graph.clusters.cpu.loops import padded
from jat_graph.clusters.cpu.reads import begin_rows, read_clusters, read_last
from jat_graph.clusters.draws import Dropout, most_dropped, node_names, seeds_of
from jat_graph.clusters.tree import FAN, LEVELS, SINKS
from jat_graph.core.compiling import run_tasks

FEW = 64  # rows, for which no thread is started
MOST = 256  # tokens of a run
SIZES = FAN ** np.arange(LEVELS)  # clusters of a node, of each level


class Run(NamedTuple):
    """Some tokens, and what they score first: near keys, and nodes of a level, side by side."""

    tokens: slice
    sinks: int
    near: slice  # keys, behind the sinks
    width: int  # number of both
    place: tuple[int, int, int]  # the column at which nodes begin, their number and their level
    columns: int  # scores, with what lies between

    @classmethod
    def of(cls, choice: Choice, tokens: slice, seen: int, last: int) -> Run:
        """Return the run of tokens that see so many clusters, and near keys up to ``last``."""
        level = choice.rule.level(seen)
        sinks = SINKS if seen else 0
        near = slice(sinks + seen * choice.tree.size, last)
        nodes = seen // FAN**level
        width = sinks + near.stop - near.start
        first = padded(width)
        return cls(tokens, sinks, near, width, (first, nodes, level), first + padded(nodes))

    def names(self) -> Any:  # int32 [1, columns]
        """Return what dropout calls each column."""
        first, nodes, level = self.place
        names = np.zeros((1, self.columns), np.int32)
        names[0, : self.sinks] = range(-SINKS, self.sinks - SINKS)
        near = range(self.near.start - SINKS, self.near.stop - SINKS)
        names[0, self.sinks : self.width] = near
        names[0, first : first + nodes] = node_names(np.arange(nodes), level)
        return names


NAMELESS: Any = np.zeros((1, 1), np.int32)  # where nothing is dropped


def numbers(x: Tensor) -> Any:
    """Return an array of a tensor; of bfloat16, which numpy does not have, its bits."""
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def levels_in(key: Tensor, value: Tensor, nodes: Nodes) -> tuple[tuple[Tensor, ...], ...]:
    """Return means of keys and values, and spread, of each level that there can be.

    They are in the precision of keys and values. Loops are compiled once for any number of levels:
    those that are not there have no nodes.
    """
    none = key[:, :0], value[:, :0], wide(key[:, :0, 0])
    more = LEVELS - len(nodes.keys)
    return tuple(
        (*(x.to(nothing.dtype).contiguous() for x in part), *[nothing] * more)
        for part, nothing in zip(nodes[:3], none, strict=True)
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
        self.means, self.value_means, spread = ([x[head] for x in part] for part in levels)
        self.members: Any = choice.tree.keys[head].view(-1, choice.tree.size).numpy()
        self.exact: Any = key[SINKS:].numpy(), value[SINKS:].numpy()
        parts = self.means, self.value_means, spread
        self.arrays: Any = tuple(tuple(x.numpy() for x in part) for part in parts)
        self.bias: Any = np.log(choice.tree.size * SIZES).astype(self.exact[0].dtype)

    def runs(self, start: int) -> list[Run]:
        """Return runs of tokens from one on, the same for all heads."""
        length = len(self.key)
        causal = self.choice.rule.causal
        first = length - self.query.size(1)
        return [
            Run.of(self.choice, tokens, seen, first + tokens.stop if causal else length)
            for tokens, seen in self.choice.runs(MOST)
            if tokens.start >= start
        ]

    def rows(self, x: Tensor, run: Run) -> Tensor:  # [groups, T, …] -> [R, …]
        """Return what belongs to some tokens, a contiguous copy."""
        return x[:, run.tokens].flatten(0, 1).contiguous()

    def met(self, run: Run, keys: bool) -> list[tuple[slice, Tensor]]:
        """Return where scores of what is met stand, and what that is, of keys or of values."""
        means, rows = (self.means, self.key) if keys else (self.value_means, self.value)
        near = torch.cat([rows[: run.sinks], rows[run.near]]) if run.sinks else rows[run.near]
        first, nodes, level = run.place
        parts = [(slice(0, run.width), near), (slice(first, first + nodes), means[level][:nodes])]
        return parts if nodes and (self.choice.rule.rest or keys) else parts[:1]

    def scores(self, query: Tensor, run: Run) -> Tensor:  # [R, columns]
        """Return the scores of all that some tokens meet, and -inf between its parts."""
        scores = query.new_empty(len(query), run.columns)
        for columns, keys in self.met(run, keys=True):
            torch.mm(query, keys.mT, out=scores[:, columns])
            scores[:, columns.stop : columns.start + padded(len(keys))] = -torch.inf
        if not self.choice.rule.causal:
            return scores
        tokens = run.tokens.stop - run.tokens.start
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu_(1)
        own = scores.view(len(self.query), tokens, -1)[..., run.width - tokens : run.width]
        own.masked_fill_(later, -torch.inf)
        return scores

    def put(self, total: Tensor, run: Run, part: Tensor) -> None:
        """Write what belongs to some tokens, unless it is there: of one query head it is a view."""
        own = total[:, run.tokens]
        if own.data_ptr() != part.data_ptr():
            own.copy_(part.view(own.shape))


def heads_of(query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes) -> list[Head]:
    """Return the heads of keys, each with its queries."""
    own = by_head(query, len(key))
    levels = levels_in(key, value, nodes)
    return [Head(own[h], key[h], value[h], choice, levels, h) for h in range(len(key))]


def draws_of(kept: Dropout, seeds: Tensor, like: Any) -> tuple[Any, int, Any]:
    """Return how rows draw for dropout: from which numbers, what is dropped, and a factor."""
    if kept is None:
        return np.zeros(len(like), np.uint32), 0, like.dtype.type(0)
    factor = like.dtype.type(1 / (kept[0] or 1.0))
    return seeds.numpy().astype(np.uint32), most_dropped(kept[0]), factor


def choose(query: Tensor, key: Tensor, empty: Choice, nodes: Nodes, kept: Dropout = None) -> Choice:
    """Let tokens descend the tree, which fills in a choice; the query is scaled."""
    _read(query, key, key, empty, nodes, False, [])
    return empty


def read(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    choice: Choice,
    nodes: Nodes,
    chosen: bool = True,
    kept: Dropout = None,
) -> tuple[Tensor, Tensor]:  # [H, T, Dv], [H, T]
    """Return what tokens read, and the logarithm of the sum of e to their scores."""
    output = query.new_empty(*query.shape[:2], value.size(-1))
    sums = [output, query.new_empty(query.shape[:2])]
    if query.size(1) == 1 and not chosen and kept is None and choice.seen[0] > 0:
        _read_last(query, key, value, choice, nodes, sums)
    else:
        _read(query, wide(key), wide(value), choice, nodes, chosen, sums, kept)
    return output, sums[1]


def _read_last(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, sums: list[Tensor]
) -> None:
    """Choose and read for one token, all of it in loops, which widen what they read."""
    # Autocast leaves them of two types, and numba knows no numbers of float16.
    if key.dtype != value.dtype or key.dtype == torch.float16:
        key, value = wide(key), wide(value)
    own = query[:, 0].numpy()
    seen = int(choice.seen[0])
    ready = {} if nodes.ready is None else nodes.ready
    if seen not in ready:
        run = Run.of(choice, slice(0, 1), seen, key.size(1))
        levels = tuple(tuple(map(numbers, part)) for part in levels_in(key, value, nodes))
        members = choice.tree.keys.contiguous().unflatten(1, (-1, choice.tree.size)).numpy()
        most = max(key.size(1) + choice.tree.segment, run.place[1])  # till more are seen
        steps = np.arange(most, dtype=np.int32)
        bias = np.log(choice.tree.size * SIZES)
        ready.clear()
        ready[seen] = run.near.start, run.place[1], bias.astype(own.dtype), members, levels, steps
    keys, values = (numbers(x if x.stride(2) == 1 else x.contiguous()) for x in (key, value))
    opened, read, output, lse = (x[:, 0].numpy() for x in (choice.opened, choice.read, *sums))
    first, most, bias, members, levels, steps = ready[seen]
    given = own, keys, values, first, most, bias, members, levels, steps
    read_last(*given, choice.rule.margin, (False, choice.rule.rest), opened, read, output, lse)


def _read(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, chosen: bool,
    sums: list[Tensor], kept: Dropout = None,
) -> None:  # fmt: skip
    heads = heads_of(query, key, value, choice, nodes)
    seeds = seeds_of(kept[1], query) if kept else query[..., 0]
    totals = [by_head(x, len(key)) for x in (seeds, choice.opened, choice.read, *sums)]

    def work(piece: tuple[int, Run]) -> None:
        number, run = piece
        head = heads[number]
        seeds, opened, picked, *outputs = [x[number] for x in totals]
        own = head.rows(head.query, run)
        scores = head.scores(own, run)
        places = [head.rows(x, run) for x in (opened, picked)]
        total = own.new_zeros(len(own), value.size(-1))
        sums = own.new_empty(2, len(own))
        query, found, weight, shift = (x.numpy() for x in (own, scores, *sums))
        to_open, to_read, reading = (x.numpy() for x in (*places, total))
        near = padded(run.width)
        met = (run.place, head.bias)
        flags = (chosen, choice.rule.rest)
        margin = found.dtype.type(choice.rule.margin)
        drawn = draws_of(kept, head.rows(seeds, run), query)
        if outputs:
            begin_rows(
                query, found, near, met, head.arrays, margin, flags, to_open, to_read, reading,
                weight, shift, run.names() if kept else NAMELESS, drawn,
            )  # fmt: skip
        else:
            choose_rows(query, found, near, met, head.arrays, margin, to_open, to_read)
        if not chosen:
            head.put(opened, run, places[0])
            head.put(picked, run, places[1])
        if not outputs:
            return
        for columns, values in head.met(run, keys=False):
            total.addmm_(scores[:, columns], values)
        keys, values = head.exact
        read_clusters(query, keys, values, head.members, to_read, reading, weight, shift, drawn)
        head.put(outputs[0], run, total)
        head.put(outputs[1], run, sums[1])

    dense = dense_rows(query, key, value, choice) if sums and kept is None else 0
    if dense:
        _read_densely(choice.rule.causal, *(x[:, :dense] for x in (query, key, value, *sums)))
    pieces = [(number, run) for number in range(len(heads)) for run in heads[0].runs(dense)]
    list(map(work, pieces) if query[..., 0].numel() <= FEW else run_tasks(work, pieces))


def dense_rows(query: Tensor, key: Tensor, value: Tensor, choice: Choice) -> int:
    """Return how many first tokens SDPA's kernel reads: those that see no cluster, or all."""
    number = int((choice.seen == 0).sum())
    if not choice.rule.causal and number < len(choice.seen):
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
