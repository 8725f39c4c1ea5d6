"""Choosing and reading on a CPU: matrix products for what all tokens meet, loops for the rest."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes, by_head
from jat_graph.clusters.descent import differentiate_rows, read_last_rows, read_rows
from jat_graph.clusters.tree import SINKS, Tree
from jat_graph.kernels.threads import run_tasks

FEW = 64  # rows, for which nothing is sorted and no thread is started
MOST = 128  # tokens of a piece
partial = True  # clusters that are in groups need no means


class Met(NamedTuple):
    """What the tokens of a run score first: near keys, and nodes of each level, side by side."""

    sinks: int
    near: slice  # keys, behind the sinks
    spans: list[tuple[int, int, int]]  # of each level: a column, its first and last such nodes

    @classmethod
    def of(cls, tree: Tree, seen: int, top: int, last: int) -> Met:
        """Return what tokens before ``last`` meet that see so many segments."""
        near = slice(SINKS + seen * tree.segment if seen else 0, last)
        sinks, spans = SINKS if seen else 0, list[tuple[int, int, int]]()
        column = sinks + near.stop - near.start
        for start, stop in tree.spans(seen, top):
            spans.append((column, start, stop))
            column += stop - start
        return cls(sinks, near, spans)

    def of_keys(self, x: Tensor) -> Tensor:  # [n, D] -> [sinks + near, D]
        """Return sinks and near keys."""
        return torch.cat([x[: self.sinks], x[self.near]]) if self.sinks else x[self.near]

    def of_nodes(self, x: list[Tensor], held: int = 0) -> list[Tensor]:
        """Return what belongs to the nodes of each level that are met."""
        ends = zip(x, self.spans, [held, *[0] * len(self.spans)], strict=False)
        return [part[start - less : stop - less] for part, (_, start, stop), less in ends]


class Head:
    """A head of keys and its queries: what they meet, and the arrays that loops run over."""

    def __init__(
        self,
        query: Tensor,  # scaled, [groups, T, D]
        key: Tensor,  # [n, D]
        value: Tensor,  # [n, Dv]
        choice: Choice,
        nodes: Nodes,
        head: int,
        ordered: bool,  # whether children shall stand beside each other
    ) -> None:
        self.query, self.key, self.value, self.choice = query, key, value, choice
        self.means, self.value_means, self.bias = ([x[head] for x in part] for part in nodes[:3])
        self.held, levels = nodes.held, choice.tree.levels
        members = [level.members[head] for level in levels]
        rows, exact = members[1:], [x[SINKS:] for x in (key, value)]
        means, value_means = self.means, self.value_means
        order = members[0] if members else choice.read.new_zeros(0)
        if ordered and members:
            exact = [x[order] for x in exact]
            below = len(rows)
            means, value_means = (
                [*(x[own] for x, own in zip(part, rows, strict=False)), *part[below:]]
                for part in (means, value_means)
            )
            order, *rows = (torch.arange(len(x), dtype=torch.int32) for x in members)
        starts = [level.starts[head] for level in levels]
        # At most so many children has what a token opens, and keys what it reads, and opens, too.
        most = [int(x.diff().max()) for x in starts] or [0]
        opened = choice.opened.size(-1) * sum(most[1:])
        self.room = opened + (choice.read.size(-1) + opened * (self.held > 0)) * most[0]
        parts: Any = (rows or [order], members, starts, self.bias, means, value_means)
        self.arrays: Any = (
            *(x.numpy() for x in (*exact, order)),
            *(tuple(x.numpy() for x in part) for part in parts),
        )

    def runs(self) -> list[tuple[slice, Met]]:
        """Return runs of tokens, and what they meet."""
        first, found = len(self.key) - self.query.size(1), []
        for rows, seen in self.choice.runs(MOST):
            found.append((rows, Met.of(self.choice.tree, seen, self.choice.top, first + rows.stop)))
        return found

    def rows(self, x: Tensor, tokens: slice) -> Tensor:  # [groups, T, …] -> [R, …]
        """Return what belongs to some tokens, a contiguous copy."""
        return x[:, tokens].flatten(0, 1).contiguous()

    def scores(self, query: Tensor, tokens: int, met: Met) -> Tensor:  # [R, columns]
        """Return the scores of all that some tokens meet."""
        near = query @ met.of_keys(self.key).mT
        if tokens > 1:
            own = near.view(len(self.query), tokens, -1)[..., near.size(-1) - tokens :]
            own.masked_fill_(torch.ones(tokens, tokens, dtype=torch.bool).triu_(1), -torch.inf)
        parts = zip(met.of_nodes(self.bias), met.of_nodes(self.means, self.held), strict=True)
        return torch.cat([near, *(torch.addmm(own, query, mean.mT) for own, mean in parts)], -1)

    def columns(self, scores: Tensor, met: Met) -> list[Tensor]:
        """Return the columns of near keys, and those of each level if nodes stand for anything."""
        sizes = [stop - start for _, start, stop in met.spans]
        parts = torch.split(scores, [scores.size(-1) - sum(sizes), *sizes], dim=-1)
        return list(parts if self.choice.rest else parts[:1])

    def put(self, total: Tensor, tokens: slice, part: Tensor) -> None:
        """Write what belongs to some tokens, unless it is there: of one query head it is a view."""
        own = total[:, tokens]
        if own.data_ptr() != part.data_ptr():
            own.copy_(part.view(own.shape))


def _heads(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, ordered: bool
) -> list[Head]:
    own = by_head(query, len(key))
    ordered = ordered and nodes.held == 0 and query[..., 0].numel() > FEW
    return [Head(own[h], key[h], value[h], choice, nodes, h, ordered) for h in range(len(key))]


def choose(query: Tensor, key: Tensor, empty: Choice, nodes: Nodes) -> Choice:
    """Let tokens descend the tree, which fills in a choice; the query is scaled."""
    _read(query, key, key, empty, nodes, False, [])
    return empty


def read(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, chosen: bool = True
) -> tuple[Tensor, Tensor]:  # [H, T, Dv], [H, T]
    """Return what tokens read, and the logarithm of the sum of e to their scores."""
    output = value.new_empty(*query.shape[:2], value.size(-1))
    sums = [output, query.new_empty(query.shape[:2])]
    if query.size(1) == 1 and not chosen and choice.seen[0] > 0:
        _read_last(query, key, value, choice, nodes, sums)
    else:
        _read(query, key, value, choice, nodes, chosen, sums)
    return output, sums[1]


def _read_last(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, sums: list[Tensor]
) -> None:
    """Choose and read for one token, all of it in loops."""
    met = Met.of(choice.tree, int(choice.seen[0]), choice.top, key.size(1))
    near = np.concatenate([np.r_[: met.sinks], np.r_[met.near]]).astype(np.int32)
    spans, flags = np.array(met.spans), (nodes.held == 0, False, choice.rest)
    columns = len(near) + int((spans[:, 2] - spans[:, 1]).sum())
    own, opened, read, *totals = (
        by_head(x, len(key))[:, :, 0].numpy() for x in (query, choice.opened, choice.read, *sums)
    )
    known = {} if nodes.arrays is None else nodes.arrays
    for head, pair in enumerate(zip(key, value, strict=True)):
        if head not in known:
            new = Head(query[:0], *pair, choice, nodes, head, False)
            known[head] = new.arrays[2:], new.room
        rest, room = known[head]
        keys, values = (x.numpy() for x in pair)
        arrays = (keys[SINKS:], values[SINKS:], *rest)
        given = near, spans, nodes.held, arrays, flags, opened[head], read[head]
        outputs = (x[head] for x in totals)
        read_last_rows(own[head], keys, values, *given, room + columns, *outputs)


def _read(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, chosen: bool,
    sums: list[Tensor],
) -> None:  # fmt: skip
    """Choose, or read, or both."""
    heads = _heads(query, key, value, choice, nodes, True)
    totals = [by_head(x, len(key)) for x in (choice.opened, choice.read, *sums)]

    def work(piece: tuple[int, slice, Met]) -> None:
        number, tokens, met = piece
        head, (opened, picked, *outputs) = heads[number], [x[number] for x in totals]
        if not met.spans and not outputs:
            return
        own = head.rows(head.query, tokens)
        scores = head.scores(own, tokens.stop - tokens.start, met)
        places = [head.rows(x, tokens) for x in (opened, picked)]
        total = value.new_zeros(len(own) if outputs else 0, value.size(-1))
        weight, largest = own.new_zeros(len(own)), own.new_empty(len(own))
        if met.spans:
            found: Any = [x.numpy() for x in (own, scores, *places, total, weight, largest)]
            flags, room = (nodes.held == 0, chosen, choice.rest), head.room + scores.size(-1)
            found[2:2] = [np.array(met.spans), head.arrays, flags]
            found.insert(7, room)
            read_rows(*found)
        else:
            largest = scores.amax(-1)
        if not chosen:
            head.put(opened, tokens, places[0])
            head.put(picked, tokens, places[1])
        if not outputs:
            return
        parts = head.columns(scores, met)
        values = [met.of_keys(head.value), *met.of_nodes(head.value_means, nodes.held)]
        for part, own_values in zip(parts, values, strict=False):
            part.sub_(largest.unsqueeze(-1)).exp_()
            weight += part.sum(-1)
            total.addmm_(part, own_values)
        head.put(outputs[0], tokens, total / weight.unsqueeze(-1))
        head.put(outputs[1], tokens, largest + weight.log())

    dense = _read_densely(query, key, value, choice, sums) if sums else 0
    runs = [[run for run in head.runs() if run[0].start >= dense] for head in heads]
    pieces = [(number, *run) for number, own in enumerate(runs) for run in own]
    list(map(work, pieces) if query[..., 0].numel() <= FEW else run_tasks(work, pieces))


def _read_densely(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, sums: list[Tensor]
) -> int:
    """Let the first tokens, which see no segment, read all before them; return their number."""
    number = int((choice.seen == 0).sum())
    if query.size(1) < key.size(1) or number <= MOST or key.size(-1) != value.size(-1):
        return 0
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
    heads = _heads(query, key, value, choice, nodes, False)
    by_query, by_key, by_value = (torch.zeros_like(x) for x in (query, key, value))
    by_keys, by_values = ([torch.zeros_like(x) for x in part] for part in nodes[:2])
    rows = [grad, (grad * output).sum(-1), lse, choice.opened, choice.read, by_query]
    rows = [by_head(x, len(key)) for x in rows]

    def work(number: int) -> None:
        for tokens, met in heads[number].runs():
            add(number, tokens, met)

    def add(number: int, tokens: slice, met: Met) -> None:
        head = heads[number]
        own = head.rows(head.query, tokens)
        come, less, shift, *chosen = (head.rows(x[number], tokens) for x in rows[:-1])
        scores, out = head.scores(own, tokens.stop - tokens.start, met), torch.zeros_like(own)
        keys, values = by_key[number], by_value[number]
        if met.spans:
            found: Any = [x.numpy() for x in (own, scores, *chosen, shift, come, less, out)]
            totals: Any = [
                (total[SINKS:].numpy(), tuple(x[number].numpy() for x in means))
                for total, means in ((keys, by_keys), (values, by_values))
            ]
            found[2:2] = [np.array(met.spans), head.arrays, (True, True, choice.rest)]
            found.insert(7, head.room + scores.size(-1))
            differentiate_rows(*found, *totals)
        pairs = [(met.of_keys(head.key), met.of_keys(head.value))]
        pairs += zip(met.of_nodes(head.means), met.of_nodes(head.value_means), strict=True)
        means = [(x[number], y[number]) for x, y in zip(by_keys, by_values, strict=True)]
        for level, part in enumerate(head.columns(scores, met)):
            part = part.sub_(shift.unsqueeze(-1)).exp_()
            by_score = (come @ pairs[level][1].mT).sub_(less.unsqueeze(-1)).mul_(part)
            out.addmm_(by_score, pairs[level][0])
            spread = by_score.mT @ own, part.mT @ come
            if level:
                _, start, stop = met.spans[level - 1]
                for total, one in zip(means[level - 1], spread, strict=True):
                    total[start:stop] += one
                continue
            for total, one in zip((keys, values), spread, strict=True):
                total[: met.sinks] += one[: met.sinks]
                total[met.near] += one[met.sinks :]
        head.put(rows[-1][number], tokens, out)

    list(run_tasks(work, range(len(key))))
    return by_query, by_key, by_value, by_keys, by_values
