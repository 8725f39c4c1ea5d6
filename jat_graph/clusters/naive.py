"""Choosing and reading as the formula says it, with all scores of some tokens at a time."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes, by_head, wide
from jat_graph.clusters.tree import LEAN, SINKS

MOST = 256  # tokens whose scores are held at a time

Dropout: TypeAlias = "tuple[float, torch.Generator] | None"  # share that dropout keeps


def _marked(items: Tensor, number: int) -> Tensor:  # [..., k] -> bool [..., number]
    """Return which of so many things are among the items; -1 is none."""
    marks = items.new_zeros(*items.shape[:-1], number + 1, dtype=torch.bool)
    return marks.scatter_(-1, items.long().where(items >= 0, number), True)[..., :number]


def _candidates(choice: Choice, level: int, span: tuple[int, int], opened: Tensor) -> Tensor:
    """Return which nodes of a level tokens score: met first, or children of opened ones."""
    start, stop = span
    shape = (*opened.shape[:-2], stop)
    found = opened.new_zeros(shape, dtype=torch.bool)
    found[..., start:] = True
    if start:
        parents = choice.tree.owner(level + 1)[:, :start]
        marked = _marked(opened[..., level, :], choice.tree.members[level + 1].size(1))
        index = parents[:, None, None].expand(*shape[:-1], -1)
        found[..., :start] = marked.gather(-1, index)
    return found


def choose(query: Tensor, key: Tensor, empty: Choice, nodes: Nodes) -> Choice:
    """Let tokens descend the tree, which fills in a choice; the query is scaled."""
    key, nodes = wide(key), nodes.wide()
    means = nodes._replace(values=nodes.keys)
    own, opened, read = (by_head(x, len(key)) for x in (query, empty.opened, empty.read))
    for rows, seen in empty.runs(MOST):
        spans = empty.tree.spans(seen, empty.top)
        met = Read(query, key, key, empty._replace(rest=True), means, rows, seen)
        least = met.scores.amax(-1) - empty.margin
        for level in reversed(range(len(spans))):
            stop = spans[level][1]
            scores = own[:, :, rows] @ nodes.keys[level][:, :stop].unsqueeze(1).mT
            lean = own[:, :, rows].norm(dim=-1, keepdim=True) * (LEAN * own.size(-1) ** -0.5)
            scores = scores + lean * nodes.spread[level][:, None, None, :stop]
            seeable = _candidates(empty, level, spans[level], opened[:, :, rows])
            seeable &= scores >= least.unsqueeze(-1)
            scores = scores.masked_fill(~seeable, -torch.inf)
            total = opened[:, :, rows, level - 1] if level else read[:, :, rows]
            best = scores.sort(dim=-1, descending=True, stable=True)
            number = min(total.size(-1), stop)
            items = best.indices.where(best.values > -torch.inf, stop)[..., :number]
            items = items.sort(dim=-1).values.int()
            total[..., :number] = items.where(items < stop, -1)
    return empty


class Read:
    """What some tokens read, with all scores: keys, and nodes of each level."""

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes,
        rows: slice, seen: int,
    ) -> None:  # fmt: skip
        tree, first = choice.tree, key.size(1) - query.size(1)
        last = first + rows.stop if choice.causal else key.size(1)
        opened, read = (by_head(x, len(key))[:, :, rows] for x in (choice.opened, choice.read))
        self.query = by_head(query, len(key))[:, :, rows]
        position = torch.arange(last, device=key.device)
        length = seen * tree.keys(0)
        exact = (position < SINKS) | (position >= SINKS + length) | (not seen)
        if choice.causal:
            exact = exact & (position <= position[first + rows.start :].unsqueeze(-1))
        exact = exact.expand(*self.query.shape[:-1], -1).clone()
        parts = [(self.query @ key[:, None, :last].mT, value[:, :last])]
        masks, spans = [exact], tree.spans(seen, choice.top)
        for level, span in enumerate(spans):
            chosen = opened[..., level - 1, :] if level else read
            chosen = _marked(chosen, tree.members[level].size(1))[..., : span[1]]
            if not level:
                index = tree.owner(0)[:, None, None, :length].expand(*chosen.shape[:-1], -1)
                exact[..., SINKS : SINKS + length] = chosen.gather(-1, index)
            if choice.rest:
                scores = self.query @ nodes.keys[level][:, None, : span[1]].mT
                scores = scores + math.log(tree.keys(level))
                parts.append((scores, nodes.values[level][:, : span[1]]))
                masks.append(_candidates(choice, level, span, opened) & ~chosen)
        self.scores = torch.cat([part[0] for part in parts], dim=-1)
        self.scores = self.scores.masked_fill(~torch.cat(masks, dim=-1), -torch.inf)
        self.values = torch.cat([part[1] for part in parts], dim=1)
        keys = [
            key[:, :last],
            *(x[:, :stop] for x, (_, stop) in zip(nodes.keys, spans, strict=False)),
        ]
        self.keys = torch.cat(keys[: len(parts)], dim=1)
        self.sizes = [part[0].size(-1) for part in parts]


def _mask(scores: Tensor, kept: Dropout) -> Tensor | None:
    """Return what weights are multiplied by in dropout."""
    if kept is None:
        return None
    share, generator = kept
    return torch.empty_like(scores).bernoulli_(share, generator=generator).div_(share or 1.0)


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
    key, value, nodes = wide(key).contiguous(), wide(value).contiguous(), nodes.wide()
    choice = choice if chosen else choose(query, key, choice, nodes)
    outputs, sums = [], []
    for rows, seen in choice.runs(MOST):
        own = Read(query, key, value, choice, nodes, rows, seen)
        lse = own.scores.logsumexp(-1)
        weights, mask = (own.scores - lse.unsqueeze(-1)).exp(), _mask(own.scores, kept)
        weights = weights if mask is None else weights * mask
        outputs.append((weights @ own.values.unsqueeze(1)).flatten(0, 1))
        sums.append(lse.flatten(0, 1))
    return torch.cat(outputs, dim=1), torch.cat(sums, dim=1)


def differentiate(
    grad: Tensor,
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
    by_query, by_key, by_value = (torch.zeros_like(x) for x in (query, key, value))
    by_keys, by_values = ([torch.zeros_like(x) for x in part] for part in nodes[:2])
    come, less, shift, to_query = (
        by_head(x, len(key)) for x in (grad, (grad * output).sum(-1), lse, by_query)
    )
    for rows, seen in choice.runs(MOST):
        own = Read(query, key, value, choice, nodes, rows, seen)
        weights, mask = (own.scores - shift[:, :, rows, None]).exp(), _mask(own.scores, kept)
        by_score = come[:, :, rows] @ own.values.unsqueeze(1).mT
        by_score = by_score if mask is None else by_score * mask
        by_score = weights * (by_score - less[:, :, rows, None])
        weights = weights if mask is None else weights * mask
        to_query[:, :, rows] = by_score @ own.keys.unsqueeze(1)
        to_keys = torch.split((by_score.mT @ own.query).sum(1), own.sizes, dim=1)
        to_values = torch.split((weights.mT @ come[:, :, rows]).sum(1), own.sizes, dim=1)
        for totals, parts in (([by_key, *by_keys], to_keys), ([by_value, *by_values], to_values)):
            for total, part in zip(totals, parts, strict=False):
                total[:, : part.size(1)] += part
    return by_query, by_key, by_value, by_keys, by_values
