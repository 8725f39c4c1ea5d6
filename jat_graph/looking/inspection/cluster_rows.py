"""Rows of attention of some queries: by exact scores, and as clusters give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.clusters.api import document_tokens
from jat_graph.clusters.attend import choose
from jat_graph.clusters.choice import Choice, Nodes, Rule
from jat_graph.clusters.tree import FAN, SINKS, cluster_of_keys
from jat_graph.hf import CapturedLayer

MEASURES = ("share", "mass", "tv", "error")
READ = len(MEASURES)  # the column of keys that are read


class Sequence(NamedTuple):
    """Heads on one sequence without padding, in the precision of sums."""

    query: Tensor  # [H, n, D]
    key: Tensor  # [H, n, D]
    value: Tensor  # [H, n, Dv]
    scale: float
    causal: bool

    def of_heads(self, heads: list[int]) -> Sequence:
        """Return some of the heads."""
        query, key, value = (x[heads] for x in self[:3])
        return self._replace(query=query, key=key, value=value)


def split_sequences(layer: CapturedLayer) -> Iterator[Sequence]:
    """Yield each document of each item of a batch."""
    assert layer.value is not None
    dtype = torch.promote_types(layer.query.dtype, torch.float32)
    for item, tokens in layer_documents(layer):
        parts = layer.query[item], layer.key[item], layer.value[item]
        query, key, value = (x[:, tokens].to(dtype) for x in parts)
        yield Sequence(query, key, value, layer.scale, layer.mask.causal)


def layer_documents(layer: CapturedLayer) -> list[tuple[int, Tensor]]:
    """Return the item and the tokens of each document of a batch, in causal order or not."""
    mask = replace(layer.mask, causal=False)
    return [own for own in document_tokens(mask, layer.query) if len(own[1])]


def measure_rows(
    sequence: Sequence,
    rules: Mapping[Rule, tuple[int, ...]],  # of which heads
    queries: int,
    seed: int,
) -> Tensor:  # [H, 6]
    """Return means over sampled queries: MEASURES, keys that are read, and if it is dense."""
    heads, length, _ = sequence.query.shape
    tokens = torch.arange(length).expand(heads, length)
    if length > queries:  # one token out of each of as many equal stretches, in each head its own
        generator = torch.Generator().manual_seed(seed)
        within = torch.rand(heads, queries, generator=generator, dtype=torch.float64)
        starts = torch.arange(queries) + within
        tokens = (starts * (length / queries)).long().clamp(max=length - 1)
    tokens = tokens.to(sequence.query.device)
    found = sequence.query.new_tensor((1.0, 1.0, 0.0, 0.0, length, 1.0)).repeat(heads, 1)
    if sequence.causal:
        found[:, READ] = (tokens + 1).to(found.dtype).mean(1)
    for rule, members in rules.items():
        if length > rule.first:
            own = list(members)
            found[own] = _measure(sequence.of_heads(own), rule, tokens[own])
    return found


def _measure(sequence: Sequence, rule: Rule, tokens: Tensor) -> Tensor:  # [H, 6]
    near, best, exact, given = cluster_rows(sequence, rule, tokens)
    length, is_read, output = sequence.query.size(1), near | best, exact @ sequence.value
    lost = (given @ sequence.value - output).norm(dim=-1) / output.norm(dim=-1).clamp(min=1e-30)
    keys = is_read.sum(-1).to(exact.dtype)
    share = keys / (tokens + 1 if sequence.causal else length)
    mass, tv = (exact * is_read).sum(-1), (given - exact).abs().sum(-1) / 2
    return torch.stack([share, mass, tv, lost, keys, torch.zeros_like(share)], -1).mean(1)


class ClusterRows(NamedTuple):
    """Rows of some queries over all keys, ``[H, r, n]`` each."""

    near: Tensor  # the first keys, and those that are in no cluster yet, bool
    best: Tensor  # keys that are in clusters read, bool
    exact: Tensor  # attention by exact scores
    given: Tensor  # attention by clusters


def cluster_rows(
    sequence: Sequence,
    rule: Rule,
    tokens: Tensor,  # [H, r]
) -> ClusterRows:
    """Return what some queries read along the tree of keys, in memory for r·n numbers a head."""
    query, key, _, scale, _ = sequence
    choice = choose(query, key, rule, scale)
    nodes = Nodes.of(choice.tree, key, key, rule)
    holder = cluster_of_keys(choice.tree)
    rows = query.new_empty(4, *tokens.shape, key.size(1))
    for head, own in enumerate(tokens):
        for seen in set(choice.seen[own].tolist()):
            alike = choice.seen[own] == seen
            given = query[head, own[alike]] * scale, key[head], choice, nodes, holder[head]
            rows[:, head, alike] = _tree_rows(*given, head, own[alike], seen)
    scores, given, near, best = rows
    return ClusterRows(near > 0, best > 0, scores.softmax(-1), given.softmax(-1))


def _tree_rows(
    query: Tensor,  # of some tokens, scaled, [r, D]
    key: Tensor,  # [n, D]
    choice: Choice,
    nodes: Nodes,
    holder: Tensor,  # the cluster of each key, [keys]
    head: int,
    tokens: Tensor,  # which these are, [r]
    seen: int,  # how many clusters all of them see
) -> Tensor:  # [4, r, n]
    """Return exact scores, those that are read, and which keys are near, and in clusters read."""
    position, length = torch.arange(len(key), device=key.device), seen * choice.tree.size
    met = (position <= tokens.unsqueeze(1)) | (not choice.rule.causal)
    scores = (query @ key.mT).masked_fill(~met, -torch.inf)
    near = met & ((position < SINKS) | (position >= SINKS + length))
    given, best = scores.clone(), torch.zeros_like(near)
    inside, left = slice(SINKS, SINKS + length), torch.ones_like(met[:, :length])  # no mean yet
    for level in range(choice.rule.level(seen) if seen else -1, -1, -1):
        own, number = holder[:length] // FAN**level, seen // FAN**level
        chosen = choice.opened[head, tokens, level - 1] if level else choice.read[head, tokens]
        opened = met.new_zeros(len(tokens), number + 1)
        opened.scatter_(1, chosen.long().where(chosen >= 0, number), True)
        stands = left & ~opened[:, own]
        means = (query @ nodes.keys[level][head, :number].mT)[:, own]
        means = means if choice.rule.rest else torch.full_like(means, -torch.inf)
        given[:, inside] = means.where(stands, given[:, inside])
        left = left & ~stands
    best[:, inside] = left
    return torch.stack([scores, given, near.to(scores.dtype), best.to(scores.dtype)])
