"""Rows of attention of some queries: by exact scores, and as clusters give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.clusters.api import document_tokens
from jat_graph.clusters.attend import choose
from jat_graph.clusters.choice import Nodes, Rule
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
            query, key, value = (x[own] for x in sequence[:3])
            some = sequence._replace(query=query, key=key, value=value)
            found[own] = _measure(some, rule, tokens[own])
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


def cluster_rows(sequence: Sequence, rule: Rule, tokens: Tensor) -> ClusterRows:  # of [H, r]
    """Return what some queries read along the tree of keys, in memory for r·n numbers a head."""
    key, rows = sequence.key, tokens.unsqueeze(-1)
    choice = choose(sequence.query, key, rule, sequence.scale)
    nodes = Nodes.of(choice.tree, key, key, rule)
    query = sequence.query.take_along_dim(rows, 1) * sequence.scale
    position = torch.arange(key.size(1), device=key.device)
    met = (position <= rows) | (not sequence.causal)
    scores = (query @ key.mT).masked_fill(~met, -torch.inf)
    cluster, seen = cluster_of_keys(choice.tree).unsqueeze(1), choice.seen[rows]
    first = seen.new_tensor([rule.level(n) for n in seen.flatten().tolist()]).view(seen.shape)
    inside = slice(SINKS, SINKS + cluster.size(-1))
    left = cluster < seen  # for which no mean stands yet
    near = met.clone()
    near[..., inside] &= ~left
    given = scores.clone()
    for level, means in reversed([*enumerate(nodes.keys)]):
        chosen = choice.opened[:, :, level - 1] if level else choice.read
        chosen = chosen.take_along_dim(rows, 1).long()
        opened = met.new_zeros(*tokens.shape, means.size(1) + 1)
        opened.scatter_(-1, chosen.where(chosen >= 0, means.size(1)), True)
        node = cluster // FAN**level
        stands = left & (first >= level) & ~opened.take_along_dim(node, -1)
        if rule.rest:
            mean_scores = (query @ means.mT).take_along_dim(node, -1)
            given[..., inside] = mean_scores.where(stands, given[..., inside])
        else:
            given[..., inside] = given[..., inside].masked_fill(stands, -torch.inf)
        left = left & ~stands
    best = torch.zeros_like(near)
    best[..., inside] = left
    return ClusterRows(near, best, scores.softmax(-1), given.softmax(-1))
