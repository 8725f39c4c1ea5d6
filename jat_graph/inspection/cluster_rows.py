"""Exact rows of some queries beside those that clusters give them: what is read, what is lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.adjacency.clusters import best_keys, choose_clusters, number_of_clusters
from jat_graph.attention.clusters import shortest_length
from jat_graph.graph_config import ClusterRule
from jat_graph.hf import CapturedLayer
from jat_graph.masks.documents import token_documents

# Numbers that some heads may take up together while their tokens join: 64 MiB in float32.
ROOM = 2**24

MEASURES = ("share", "mass", "tv", "error")


class Sequence(NamedTuple):
    """Heads on one sequence without padding, in the precision of sums."""

    query: Tensor  # [H, n, D]
    key: Tensor  # [H, n, D]
    value: Tensor  # [H, n, Dv]
    scale: float

    def of_heads(self, heads: list[int]) -> Sequence:
        """Return some of the heads."""
        query, key, value = (x[heads] for x in self[:3])
        return Sequence(query, key, value, self.scale)


def split_sequences(layer: CapturedLayer) -> Iterator[Sequence]:
    """Yield each document of each item of a batch."""
    assert layer.value is not None
    parts = layer.query, layer.key, layer.value
    dtype = torch.promote_types(layer.query.dtype, torch.float32)
    documents = layer_documents(layer)
    for names, *item in zip(documents, *parts, strict=True):
        for name in names[names >= 0].unique():
            tokens = torch.nonzero(names == name).squeeze(-1)
            query, key, value = (x[:, tokens].to(dtype) for x in item)
            yield Sequence(query, key, value, layer.scale)


def layer_documents(layer: CapturedLayer) -> Tensor:  # [B, L]
    """Return the document of each token, -1 for padding."""
    documents = token_documents(layer.mask, layer.query)
    if documents is not None:
        return documents
    return torch.zeros_like(layer.query[:, 0, :, 0], dtype=torch.int32)


def sample_tokens(length: int, heads: int, number: int, seed: int) -> Tensor:  # [H, r]
    """Draw one token out of each of as many equal stretches, for each head its own."""
    if length <= number:
        return torch.arange(length).expand(heads, length)
    generator = torch.Generator().manual_seed(seed)
    within = torch.rand(heads, number, generator=generator, dtype=torch.float64)
    return ((torch.arange(number) + within) * (length / number)).long().clamp(max=length - 1)


def measure_rows(
    sequence: Sequence,
    rules: Mapping[ClusterRule, tuple[int, ...]],  # of which heads
    queries: int,
    seed: int,
) -> Tensor:  # [H, 6]
    """Return means over sampled queries: MEASURES, keys and clusters read, and if it is dense."""
    heads, length, width = sequence.query.shape
    tokens = sample_tokens(length, heads, queries, seed).to(sequence.query.device)
    found = sequence.query.new_tensor((1.0, 1.0, 0.0, 0.0, length, 1.0)).repeat(heads, 1)
    for rule, members in rules.items():
        if length < shortest_length(rule):
            continue
        step = max(1, ROOM // (length * (width + number_of_clusters(length, rule.clusters))))
        for first in range(0, len(members), step):
            part = list(members[first : first + step])
            found[part] = _measure(sequence.of_heads(part), rule, tokens[part])
    return found


def _measure(sequence: Sequence, rule: ClusterRule, tokens: Tensor) -> Tensor:  # [H, 6]
    """Compare the rows, in memory for r·n numbers a head."""
    query, key, value, scale = sequence
    length = query.size(1)
    key = key - key.mean(1, keepdim=True)  # softmax does not see it
    joined, centres = choose_clusters(query, key, rule.clusters, rule.refine)

    def gather(x: Tensor, index: Tensor) -> Tensor:  # [H, r, D]
        return x.gather(1, index.unsqueeze(-1).expand(-1, -1, x.size(-1)))

    scores = (gather(query, tokens) * scale) @ key.mT  # [H, r, n]
    towards = gather(centres, joined.gather(1, tokens)) * scale
    rows = towards @ key.mT
    is_read = torch.zeros_like(rows, dtype=torch.bool)
    is_read.scatter_(-1, best_keys(towards, key, rule.keys)[0], True)
    if rule.block:
        blocks = torch.arange(length, device=key.device) // rule.block
        is_read |= (blocks[tokens].unsqueeze(-1) - blocks).abs() <= 1
    rest = rows if rule.propagate else torch.full_like(rows, -torch.inf)
    exact, given = scores.softmax(-1), torch.where(is_read, scores, rest).softmax(-1)
    output = exact @ value
    lost = (given @ value - output).norm(dim=-1) / output.norm(dim=-1).clamp(min=1e-30)
    share = is_read.to(rows.dtype).mean(-1)
    mass, tv = (exact * is_read).sum(-1), (given - exact).abs().sum(-1) / 2
    found = [share, mass, tv, lost, share * length + centres.size(1), torch.zeros_like(share)]
    return torch.stack(found, -1).mean(1)
