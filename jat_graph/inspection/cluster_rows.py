"""Rows of attention of some queries: by exact scores, and as clusters give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.adjacency.clusters import (
    best_keys,
    causal_landmarks,
    choose_clusters,
    number_of_clusters,
)
from jat_graph.attention.clusters import first_clustered, shortest_length
from jat_graph.graph_config import ClusterRule
from jat_graph.hf import CapturedLayer
from jat_graph.masks.tokens import document_tokens

# Numbers that some heads may take up together while their tokens join: 64 MiB in float32.
ROOM = 2**24

MEASURES = ("share", "mass", "tv", "error")
READ = len(MEASURES)  # the column of keys and clusters that are read


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
    rules: Mapping[ClusterRule, tuple[int, ...]],  # of which heads
    queries: int,
    seed: int,
) -> Tensor:  # [H, 6]
    """Return means over sampled queries: MEASURES, keys and clusters read, and if it is dense."""
    heads, length, width = sequence.query.shape
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
        if length < shortest_length(rule, sequence.causal):
            continue
        step = max(1, ROOM // (length * (width + number_of_clusters(length, rule.clusters))))
        for first in range(0, len(members), step):
            part = list(members[first : first + step])
            found[part] = _measure(sequence.of_heads(part), rule, tokens[part])
    return found


def _measure(sequence: Sequence, rule: ClusterRule, tokens: Tensor) -> Tensor:  # [H, 6]
    near, best, exact, given = cluster_rows(sequence, rule, tokens)
    length, is_read, output = sequence.query.size(1), near | best, exact @ sequence.value
    lost = (given @ sequence.value - output).norm(dim=-1) / output.norm(dim=-1).clamp(min=1e-30)
    keys = is_read.sum(-1).to(exact.dtype)
    share = keys / (tokens + 1 if sequence.causal else length)
    mass, tv = (exact * is_read).sum(-1), (given - exact).abs().sum(-1) / 2
    keys += number_of_clusters(length, rule.clusters)
    return torch.stack([share, mass, tv, lost, keys, torch.zeros_like(share)], -1).mean(1)


class ClusterRows(NamedTuple):
    """Rows of some queries over all keys, ``[H, r, n]`` each."""

    near: Tensor  # keys in the blocks around, bool
    best: Tensor  # keys that their cluster names, bool
    exact: Tensor  # attention by exact scores
    given: Tensor  # attention by clusters


def cluster_rows(
    sequence: Sequence,
    rule: ClusterRule,
    tokens: Tensor,  # [H, r]
) -> ClusterRows:
    """Return what some queries read, in memory for r·n numbers a head."""
    if sequence.causal:
        parts = [_causal_rows(sequence, rule, token) for token in tokens.T.unsqueeze(-1)]
        return ClusterRows(*(torch.stack(x, 1) for x in zip(*parts, strict=True)))
    query, key, _, scale, _ = sequence
    key = key - key.mean(1, keepdim=True)  # softmax does not see it
    joined, centres = choose_clusters(query, key, rule.clusters, rule.refine)
    chosen = (query, tokens), (centres, joined.gather(1, tokens))
    queries, towards = (x.take_along_dim(i.unsqueeze(-1), 1) * scale for x, i in chosen)
    scores, rows = queries @ key.mT, towards @ key.mT
    best = torch.zeros_like(rows, dtype=torch.bool)
    best.scatter_(-1, best_keys(towards, key, min(rule.keys, key.size(1)))[0], True)
    block = torch.arange(key.size(1), device=key.device) // max(rule.block, 1)
    near = ((block[tokens].unsqueeze(-1) - block).abs() <= 1) & (rule.block > 0)
    rest = rows if rule.propagate else torch.full_like(rows, -torch.inf)
    given = torch.where(near | best, scores, rest)
    return ClusterRows(near, best, scores.softmax(-1), given.softmax(-1))


def _causal_rows(sequence: Sequence, rule: ClusterRule, token: Tensor) -> ClusterRows:
    """Return the rows [H, n] of one token of each head, [H, 1], which chooses anew."""
    query, key, _, scale, _ = sequence
    position = torch.arange(key.size(1), device=key.device)
    complete = token // rule.block * rule.block
    joined = _causal_landmark(query, key, token, complete)
    scores, rows = (
        (query.take_along_dim(i.unsqueeze(-1), 1) @ key.mT).squeeze(1) * scale
        for i in (token, joined)
    )
    seen = position <= token
    far = (position < complete - rule.block) & (token >= first_clustered(rule))
    order = rows.masked_fill(~far, -torch.inf).sort(descending=True, stable=True).indices
    best = torch.zeros_like(far).scatter_(-1, order[:, : rule.keys], True) & far
    shares = far.to(key.dtype) / far.sum(-1, keepdim=True).clamp(min=1)
    offset = (shares * (scores - rows)).sum(-1, keepdim=True)  # scale · (q_i − q_a) · k̄
    rest = rows + offset if rule.propagate else torch.full_like(rows, -torch.inf)
    given = torch.where(far & ~best, rest, scores)
    exact, given = (x.masked_fill(~seen, -torch.inf).softmax(-1) for x in (scores, given))
    return ClusterRows(seen & ~far, best, exact, given)


@torch.no_grad()
def _causal_landmark(query: Tensor, key: Tensor, token: Tensor, complete: Tensor) -> Tensor:
    """Return the landmark that a token joins, [H, 1]; all that counts is in complete blocks."""
    position = torch.arange(key.size(1), device=key.device)
    before = (position < complete).to(key.dtype).unsqueeze(1)  # [H, 1, n]
    shares = before / before.sum(-1, keepdim=True).clamp(min=1)
    query, key = query - shares @ query, (key - shares @ key) * before.mT
    known = causal_landmarks(key.size(1), key.device)
    centres = query[:, known]
    towards = centres @ (key.mT @ key)
    squares = (towards * centres).sum(-1).clamp(min=torch.finfo(key.dtype).tiny)
    own = query.take_along_dim(token.unsqueeze(-1), 1)
    likeness = (own @ towards.mT).squeeze(1) / squares.sqrt()
    return known[likeness.masked_fill(known >= complete, -torch.inf).argmax(-1, keepdim=True)]
