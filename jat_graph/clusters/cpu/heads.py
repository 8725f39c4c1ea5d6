"""Heads on a CPU: what runs of their tokens meet, and the arrays that loops run over."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes, wide
from jat_graph.clusters.cpu.loops import padded
from jat_graph.clusters.tree import LEVELS, SINKS

MOST = 256  # tokens of a run


class Met(NamedTuple):
    """What the tokens of a run score first: near keys, and nodes of each level, side by side."""

    sinks: int
    near: slice  # keys, behind the sinks
    spans: np.ndarray[Any, Any]  # of each level a column, its first and last such nodes
    bias: np.ndarray[Any, Any]  # logarithms of their numbers of keys
    columns: int

    @classmethod
    def of(cls, choice: Choice, seen: int, last: int, dtype: Any) -> Met:
        """Return what tokens before ``last`` meet that see so many segments."""
        near = slice(SINKS + seen * choice.tree.segment if seen else 0, last)
        sinks, spans = SINKS if seen else 0, list[tuple[int, int, int]]()
        columns = padded(sinks + near.stop - near.start)
        for start, stop in choice.tree.spans(seen, choice.top):
            spans.append((columns, start, stop))
            columns += padded(stop - start)
        bias = [math.log(choice.tree.keys(level)) for level in range(len(spans))]
        table = np.array(spans, dtype=np.int64).reshape(-1, 3)
        return cls(sinks, near, table, np.array(bias, dtype=dtype), columns)

    @property
    def width(self) -> int:
        """Number of sinks and near keys."""
        return self.sinks + int(self.near.stop - self.near.start)

    def of_keys(self, x: Tensor) -> Tensor:  # [n, D] -> [sinks + near, D]
        """Return sinks and near keys."""
        return torch.cat([x[: self.sinks], x[self.near]]) if self.sinks else x[self.near]

    def of_nodes(self, x: list[Tensor]) -> list[Tensor]:
        """Return what belongs to the nodes of each level that are met."""
        return [part[start:stop] for part, (_, start, stop) in zip(x, self.spans, strict=False)]


def numbers(x: Tensor) -> Any:
    """Return an array of a tensor; of bfloat16, which numpy does not have, its bits."""
    return (x.view(torch.uint16) if x.dtype == torch.bfloat16 else x).numpy()


def levels_of(
    key: Tensor, value: Tensor, choice: Choice, nodes: Nodes
) -> tuple[tuple[Tensor, ...], ...]:
    """Return children, means of keys and values, and spread of each level that there can be.

    Loops are compiled once for any number of levels: those that are not there have no nodes.
    """
    members = choice.tree.members
    none = [choice.read.new_empty(len(key), 0, choice.tree.keys(0)), key[:, :0], value[:, :0]]
    none.append(wide(key[:, :0, 0]))
    parts = zip((members, *nodes[:3]), none, strict=True)
    more = LEVELS - len(members)
    return tuple((*(x.contiguous() for x in part), *[nothing] * more) for part, nothing in parts)


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

    def runs(self) -> list[tuple[slice, Met]]:
        """Return runs of tokens, and what they meet."""
        first, dtype = len(self.key) - self.query.size(1), self.exact[0].dtype
        return [
            (rows, Met.of(self.choice, seen, first + rows.stop, dtype))
            for rows, seen in self.choice.runs(MOST)
        ]

    def rows(self, x: Tensor, tokens: slice) -> Tensor:  # [groups, T, …] -> [R, …]
        """Return what belongs to some tokens, a contiguous copy."""
        return x[:, tokens].flatten(0, 1).contiguous()

    def met(self, met: Met, keys: bool) -> list[tuple[slice, Tensor]]:
        """Return where scores of what is met stand, and what that is, of keys or of values."""
        means, rows = (self.means, self.key) if keys else (self.value_means, self.value)
        parts = [met.of_keys(rows), *met.of_nodes(means if self.choice.rest or keys else [])]
        firsts = [0, *met.spans[:, 0].tolist()]
        return [(slice(first, first + len(x)), x) for first, x in zip(firsts, parts, strict=False)]

    def scores(self, query: Tensor, tokens: int, met: Met) -> Tensor:  # [R, columns]
        """Return the scores of all that some tokens meet, and -inf between its parts."""
        scores = query.new_empty(len(query), met.columns)
        for columns, keys in self.met(met, keys=True):
            torch.mm(query, keys.mT, out=scores[:, columns])
            scores[:, columns.stop : columns.start + padded(len(keys))] = -torch.inf
        later = torch.ones(tokens, tokens, dtype=torch.bool).triu_(1)
        own = scores.view(len(self.query), tokens, -1)[..., met.width - tokens : met.width]
        own.masked_fill_(later, -torch.inf)
        return scores

    def put(self, total: Tensor, tokens: slice, part: Tensor) -> None:
        """Write what belongs to some tokens, unless it is there: of one query head it is a view."""
        own = total[:, tokens]
        if own.data_ptr() != part.data_ptr():
            own.copy_(part.view(own.shape))
