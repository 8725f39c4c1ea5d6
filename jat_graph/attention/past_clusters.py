"""The same for clusters: what landmarks have read of keys that are far from the next tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.scores import full_precision
from jat_graph.attention.causal_clusters import read_blocks
from jat_graph.attention.causal_state import CausalState, Keys
from jat_graph.attention.clusters import first_clustered
from jat_graph.attention.heads import HeadGroup, HeadOutput, HeadParts
from jat_graph.attention.past import BACK, Past
from jat_graph.attention.propagation import Features
from jat_graph.graph_config import ClusterRule
from jat_graph.masks.tokens import TokenMask, causal_rows

# Of no token; of some tokens ago, each with all queries of the block that was not complete, so that
# a crop may go back into it; and of all tokens.
States: TypeAlias = tuple[CausalState, ...]


class ClusterReaders(NamedTuple):
    """Heads of a layer that read by one rule."""

    rule: ClusterRule
    heads: tuple[int, ...]  # among those of queries
    owners: tuple[int, ...]  # the head of keys that each of them reads

    def keys(self, key: Tensor, value: Tensor) -> Keys:  # [G, n, D], [G, n, Dv]
        """Return those of a sequence, which they read in place."""
        shared = range(len(key))
        even = self.owners == tuple(own for own in shared for _ in self.heads[:: len(key)])
        return Keys(key, value, torch.tensor(self.owners, device=key.device), even)

    def densely(self, features: Features) -> HeadGroup:
        """Return ordinary heads."""
        query, key, value = features
        if len(self.heads) < query.size(1):
            query = query[:, list(self.heads)]
            key, value = (x[:, list(self.owners)] for x in (key, value))
        return HeadGroup(self.heads, query, key, value, jumps=False)


class Span(NamedTuple):
    """The tokens of one sequence of a batch, which are no padding."""

    tokens: Tensor | slice  # among all
    own: Tensor | slice  # among the next ones
    before: int  # tokens before the next ones
    length: int  # of all

    @classmethod
    def of_mask(cls, valid: Tensor | None, query: Tensor, length: int) -> list[Span]:
        """Return those of each sequence, of so many columns."""
        batch, new = query.size(0), query.size(2)
        if valid is None:
            return [cls(slice(None), slice(None), length - new, length)] * batch
        spans = []
        for row in valid[:, 0].expand(batch, -1):
            tokens = row.nonzero().squeeze(-1)
            number = len(tokens)
            before = number - int(row[length - new :].sum())
            if number and int(tokens[0]) == length - number:
                own = slice(new - number + before, None)
                spans.append(cls(slice(length - number, None), own, before, number))
            else:
                spans.append(cls(tokens, tokens[before:] - length + new, before, number))
        return spans


@dataclass(eq=False)
class ClusterPast(Past):
    """What earlier tokens left behind for heads that read by clusters."""

    heads: tuple[ClusterReaders, ...]
    states: list[list[States]] = field(default_factory=list)  # for each rule, of each sequence

    @torch.no_grad()
    def append(
        self, own: Features, mask: TokenMask, scale: float, strength: Tensor | None = None
    ) -> HeadParts:
        spans = Span.of_mask(mask.valid, own[0], own[1].size(2))
        self.count(own[0], mask)
        self.states = self.states or [[()] * len(spans) for _ in self.heads]
        with full_precision(own[0].device):
            return [
                _read(readers, own, spans, states, scale)
                for readers, states in zip(self.heads, self.states, strict=True)
            ]

    def reorder(self, order: Tensor) -> None:
        states, self.states = self.states, []
        super().reorder(order)
        self.states = [[own[row] for row in order.tolist()] for own in states]

    def crop(self, length: int) -> None:
        super().crop(length)
        for own in self.states:
            for row, states in enumerate(own):
                left = self.length if self.valid is None else int(self.valid[row].sum())
                own[row] = _cropped(states, left)


def _read(
    readers: ClusterReaders,
    features: Features,
    spans: list[Span],
    states: list[States],  # of each sequence, which come to hold the next tokens, too
    scale: float,
) -> HeadGroup | HeadOutput:
    """Return how heads of one rule read; ordinary ones where all the next tokens are dense."""
    (query, key, value), rule, heads = features, readers.rule, list(readers.heads)
    if rule.dense_below == math.inf:
        return readers.densely(features)
    first = first_clustered(rule)
    all_dense = max(span.length for span in spans) <= first
    size = len(query), query.size(2), len(heads), value.size(-1)
    output = value.new_zeros(size).transpose(1, 2)  # heads of a token stand together
    for row, span in enumerate(spans):
        keys = readers.keys(key[row][:, span.tokens], value[row][:, span.tokens])
        own = query[row, heads][:, span.own]
        precise = own.to(torch.promote_types(own.dtype, torch.float32)) * scale
        if span.before == 0:
            far, states[row] = read_whole(precise, keys, rule, first)
        elif states[row]:
            far, states[row] = stream(states[row], precise, keys, rule, first)
        else:
            raise ValueError(
                f"cluster heads support a crop of up to {BACK} tokens, and this cache was cropped "
                "by more: pass a new one, or use_cache=False"
            )
        if not all_dense and own.size(1):
            near, far = own[:, : own.size(1) - far.size(1)], far.to(value.dtype)
            if near.size(1):
                far = torch.cat([_read_all(near, keys, span.before, scale), far], dim=1)
            output[row][:, span.own] = far
    return readers.densely(features) if all_dense else HeadOutput(readers.heads, output)


def _read_all(query: Tensor, keys: Keys, before: int, scale: float) -> Tensor:  # [H, n, Dv]
    """Return what tokens read by SDPA, so many others being before them."""
    number, length = query.size(1), before + query.size(1)
    key, value = (x[None] for x in keys.part(0, length, query.dtype))
    mask = causal_rows(number, length, query.device) if before else None
    options: dict[str, Any] = {"is_causal": mask is None, "enable_gqa": key.size(1) != len(query)}
    output = F.scaled_dot_product_attention(query[None], key, value, mask, scale=scale, **options)
    return output[0].to(keys.value.dtype)


def read_whole(
    query: Tensor,  # scaled, in the precision of sums, [H, n, D]
    keys: Keys,
    rule: ClusterRule,
    first: int,  # token that reads by clusters
) -> tuple[Tensor, States]:  # of those tokens, [H, n - first, Dv]
    """Return what the tokens of a sequence read from one on, and what they leave behind."""
    empty, number = CausalState.new(query, keys), query.size(1)
    blocks = (number - BACK) // rule.block * rule.block  # the rest leaves states to crop to
    if blocks <= 0:
        return stream((empty, empty), query, keys, rule, first)
    if blocks <= first:
        output, state = empty.total, empty.extend(query[:, :blocks]).close(keys, rule, first)
    else:
        output, state = read_blocks(query[:, :blocks], keys, rule)
    rest, states = stream((empty, state), query[:, blocks:], keys, rule, first)
    return torch.cat([output[:, first:], rest], dim=1), states


def stream(
    states: States, query: Tensor, keys: Keys, rule: ClusterRule, first: int
) -> tuple[Tensor, States]:
    """Return the same of the next tokens of a sequence."""
    kept, state = list(states), states[-1]
    outputs = [query.new_zeros(len(query), 0, keys.value.size(-1))]
    while query.size(1):
        step = rule.block - state.queries.size(1)
        if state.length < first:
            step = min(step, first - state.length)
        else:
            outputs.append(state.read(query[:, :step], keys, rule))
        kept[-1] = state = state.extend(query[:, :step])
        query = query[:, step:]
        if state.queries.size(1) == rule.block:
            state = state.close(keys, rule, first)
            kept.append(state)
        if len(kept) > 2 and kept[2].complete <= state.length - BACK:
            del kept[1]
    return torch.cat(outputs, dim=1), tuple(kept)


def _cropped(states: States, length: int) -> States:
    """Return the states after the first tokens alone; none where they are not known any more."""
    for number, state in reversed(list(enumerate(states))):
        if state.complete <= length <= state.length:
            queries = state.queries[:, : length - state.complete]
            latest = state._replace(length=length, queries=queries)
            return (*states[: max(number, 1)], latest)
    return ()
