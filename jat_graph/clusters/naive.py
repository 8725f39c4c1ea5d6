"""Choosing and reading as the formula says it, with all scores of some tokens at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes, by_head, wide
from jat_graph.clusters.draws import Dropout, drawn_by, most_dropped, node_names, seeds_of
from jat_graph.clusters.tree import FAN, LEAN, SINKS

MOST = 256  # tokens whose scores are held at a time


def _marked(items: Tensor, number: int) -> Tensor:  # [..., k] -> bool [..., number]
    """Return which of so many things are among the items; -1 is none."""
    marks = items.new_zeros(*items.shape[:-1], number + 1, dtype=torch.bool)
    return marks.scatter_(-1, items.long().where(items >= 0, number), True)[..., :number]


def choose(query: Tensor, key: Tensor, empty: Choice, nodes: Nodes, kept: Dropout = None) -> Choice:
    """Let tokens descend the tree, which fills in a choice; the query is scaled."""
    key = wide(key)
    nodes = nodes.wide()
    rule = empty.rule
    met = key, key, empty._replace(rule=rule._replace(rest=True)), nodes._replace(values=nodes.keys)
    own, opened, read = (by_head(x, len(key)) for x in (query, empty.opened, empty.read))
    for rows, seen in empty.runs(MOST):
        least = Read(query, *met, rows, seen).scores.amax(-1) - rule.margin
        lean = own[:, :, rows].norm(dim=-1, keepdim=True) * (LEAN * own.size(-1) ** -0.5)
        fits: Tensor = torch.ones((), dtype=torch.bool, device=key.device)
        for level in range(rule.level(seen) if seen else -1, -1, -1):
            number = seen // FAN**level
            scores = own[:, :, rows] @ nodes.keys[level][:, :number].unsqueeze(1).mT
            scores = scores + lean * nodes.spread[level][:, None, None, :number]
            fits = fits & (scores >= least.unsqueeze(-1))
            total = opened[:, :, rows, level - 1] if level else read[:, :, rows]
            best = scores.masked_fill(~fits, -torch.inf).sort(descending=True, stable=True)
            most = min(total.size(-1), number)
            items = best.indices.where(best.values > -torch.inf, number)[..., :most]
            items = items.sort(dim=-1).values.int()
            total[..., :most] = items.where(items < number, -1)
            fits = _marked(total, number).repeat_interleave(FAN, dim=-1)
    return empty


class Read:
    """What some tokens read, with all scores: keys, and nodes of each level."""

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes,
        rows: slice, seen: int,
    ) -> None:  # fmt: skip
        tree = choice.tree
        rule = choice.rule
        first = key.size(1) - query.size(1)
        last = first + rows.stop if rule.causal else key.size(1)
        length = seen * tree.size
        opened, read = (by_head(x, len(key))[:, :, rows] for x in (choice.opened, choice.read))
        self.query = by_head(query, len(key))[:, :, rows]
        position = torch.arange(last, device=key.device)
        exact = (position < SINKS) | (position >= SINKS + length)
        if rule.causal:
            exact = exact & (position <= position[first + rows.start :].unsqueeze(-1))
        exact = exact.expand(*self.query.shape[:-1], -1).clone()
        chosen = _marked(read, seen)
        index = tree.keys[:, None, None, :length].long().expand(*chosen.shape[:-1], -1)
        exact[..., SINKS:].scatter_(-1, index, chosen.repeat_interleave(tree.size, dim=-1))
        parts = [(self.query @ key[:, None, :last].mT, key[:, :last], value[:, :last])]
        masks = [exact]
        self.names = [position - SINKS]
        levels = rule.level(seen) + 1 if rule.rest and seen else 0
        for level in range(levels):
            number = seen // FAN**level
            own = ~chosen
            if level + 1 < levels:
                chosen = _marked(opened[..., level, :], number // FAN)
                own = own & chosen.repeat_interleave(FAN, dim=-1)
            means = nodes.keys[level][:, :number]
            scores = self.query @ means.unsqueeze(1).mT + math.log(tree.size * FAN**level)
            parts.append((scores, means, nodes.values[level][:, :number]))
            masks.append(own)
            self.names.append(node_names(torch.arange(number, device=key.device), level))
        self.sizes = [part[0].size(-1) for part in parts]
        every, *pair = zip(*parts, strict=True)
        self.scores = torch.cat(every, dim=-1).masked_fill(~torch.cat(masks, dim=-1), -torch.inf)
        self.keys, self.values = (torch.cat(x, dim=1) for x in pair)


def _mask(read: Read, seeds: Tensor, share: float) -> Tensor:
    """Return what weights are multiplied by in dropout."""
    drawn = drawn_by(seeds.unsqueeze(-1), torch.cat(read.names))
    return (drawn > most_dropped(share)).to(read.scores) / (share or 1.0)


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
    key = wide(key).contiguous()
    value = wide(value).contiguous()
    nodes = nodes.wide()
    choice = choice if chosen else choose(query, key, choice, nodes)
    outputs, sums = [], []
    seeds = by_head(seeds_of(kept[1], query), len(key)) if kept else query
    for rows, seen in choice.runs(MOST):
        own = Read(query, key, value, choice, nodes, rows, seen)
        lse = own.scores.logsumexp(-1)
        weights = (own.scores - lse.unsqueeze(-1)).exp()
        weights = weights * _mask(own, seeds[:, :, rows], kept[0]) if kept else weights
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
    nodes = nodes.wide()
    by_query, by_key, by_value = (torch.zeros_like(x) for x in (query, key, value))
    by_keys, by_values = ([torch.zeros_like(x) for x in part] for part in nodes[:2])
    seeds = seeds_of(kept[1], query) if kept else lse
    come, less, shift, to_query, seeds = (
        by_head(x, len(key)) for x in (grad, (grad * output).sum(-1), lse, by_query, seeds)
    )
    for rows, seen in choice.runs(MOST):
        own = Read(query, key, value, choice, nodes, rows, seen)
        mask = _mask(own, seeds[:, :, rows], kept[0]) if kept else torch.ones_like(own.scores)
        weights = (own.scores - shift[:, :, rows, None]).exp()
        by_score = come[:, :, rows] @ own.values.unsqueeze(1).mT
        by_score = weights * (by_score * mask - less[:, :, rows, None])
        weights = weights * mask
        to_query[:, :, rows] = by_score @ own.keys.unsqueeze(1)
        to_keys = torch.split((by_score.mT @ own.query).sum(1), own.sizes, dim=1)
        to_values = torch.split((weights.mT @ come[:, :, rows]).sum(1), own.sizes, dim=1)
        for totals, parts in (([by_key, *by_keys], to_keys), ([by_value, *by_values], to_values)):
            for total, part in zip(totals, parts, strict=False):
                total[:, : part.size(1)] += part
    return by_query, by_key, by_value, by_keys, by_values
