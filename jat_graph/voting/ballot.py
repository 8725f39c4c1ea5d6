"""Everything that fixes the adjacency of a batch: scores, voting keys, the rule, the mask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from jat_graph.config import JatConfig
from jat_graph.masks.tokens import TokenMask
from jat_graph.voting.keys import VotingKeys, key_slices, select_keys
from jat_graph.voting.links import LinkRule
from jat_graph.voting.parts import PartScores, part_features
from jat_graph.voting.rule import VoteRule
from jat_graph.voting.scores import MapScores, QueryKeyScores, ScoreSource
from jat_graph.voting.standard import standard_features, standard_map
from jat_graph.voting.thresholds import adaptive_threshold


@dataclass(frozen=True)
class Ballot:
    """Who votes on which pairs, and by which rule."""

    source: ScoreSource
    keys: VotingKeys
    rule: VoteRule
    mask: TokenMask
    nodes: Tensor | None  # tokens that are nodes of the graph, bool [B|1, H|1, L]; None if all are

    @property
    def num_keys(self) -> int:
        """Number of entries of the voting keys, U."""
        return self.keys.number(self.source)

    def key_scores(
        self, keys: slice = slice(None), rows: slice = slice(None)
    ) -> tuple[Tensor, Tensor | None]:  # [B, H, rows, u], [B, H, u]
        """Return scores to some voting keys, NaN where masked, and max(1, ‖K_j‖) or None."""
        index = self.keys.positions(keys, self.source)
        scores = self.source.columns(index, rows)
        visible = self._visible(keys, rows)
        if visible is not None:
            scores = scores.masked_fill(~visible, torch.nan)
        return scores, self.rule.norms(self.source, index)

    def key_blocks(self, elements: int) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
        """Yield the voting keys in blocks of so many scores, and :meth:`key_scores` of each."""
        for keys in key_slices(self.source, self.num_keys, elements):
            yield keys, *self.key_scores(keys)

    def columns(
        self, keys: slice = slice(None), rows: slice = slice(None)
    ) -> tuple[Tensor, Tensor]:  # [B, H, u, rows], [B, H, u]
        """Return what kernels take of some voting keys: :meth:`VoteRule.settle` of their scores."""
        return self.rule.settle(*self.key_scores(keys, rows))

    def column_blocks(self, elements: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield :meth:`columns` of the voting keys in blocks of so many scores."""
        for keys in key_slices(self.source, self.num_keys, elements):
            yield self.columns(keys)

    def links(
        self, rule: LinkRule, rows: slice = slice(None)
    ) -> Tensor:  # [B, H, rows, U], or 2U with both sides
        """Return how the tokens stand on the voting keys as stones; 0 where masked.

        ``rows`` are those of which the source has queries.
        """
        keys = slice(None)
        scores = self.source.columns(self.keys.positions(keys, self.source))
        return rule.links(scores, self._visible(keys, rows))

    def voters(self) -> Tensor:  # [B|1, H|1, L|1]
        """Return how many voting keys each query sees, at least 1, for the share of Eq. 3."""
        if self.mask.pairs is not None:
            visible = self._visible(slice(None), slice(None))
            count = torch.zeros(1) if visible is None else visible.sum(-1)
        elif self.mask.causal:
            count = key_places(self.keys, self.source).cumsum(-1)
        elif self.keys.valid is None:
            count = torch.full((1, 1, 1), self.num_keys)
        else:
            count = self.keys.valid.sum(-1, keepdim=True)
        return count.clamp(min=1).to(self.source.device, self.source.dtype)

    def edge_mask(self) -> Tensor:
        """Return which pairs may have an edge: i ≠ k, and M_ik; ``[B|1, H|1, L, L]`` bool."""
        length, device = self.source.shape[2], self.source.device
        off_diagonal = ~torch.eye(length, dtype=torch.bool, device=device)[None, None]
        allowed = self.mask.allowed(length, device)
        return off_diagonal if allowed is None else off_diagonal & allowed

    def _visible(self, keys: slice, rows: slice) -> Tensor | None:
        """Return M_ij for nodes i and voting keys j, ``[B|1, H|1, rows|1, u]``, or None."""
        parts = []
        if self.keys.valid is not None:
            parts.append(self.keys.valid[..., None, keys])
        if self.nodes is not None:
            parts.append(self.nodes[..., rows].unsqueeze(-1))
        length = self.source.shape[2]
        position = torch.arange(length, device=self.source.device)
        if self.mask.causal:
            index = position[None, None] if self.keys.index is None else self.keys.index
            parts.append(index[..., None, keys] <= position[rows].unsqueeze(-1))
        if self.mask.pairs is not None:
            parts.append(self._pairs_at(self.mask.pairs, keys)[:, :, rows])
        return reduce(torch.logical_and, parts) if parts else None

    def _pairs_at(self, pairs: Tensor, keys: slice) -> Tensor:
        index = self.keys.positions(keys, self.source)
        if index is None:
            return pairs
        batch, heads, length = self.source.shape
        index = index.unsqueeze(2).expand(-1, -1, length, -1)
        return pairs.expand(batch, heads, -1, -1).gather(3, index)


def score_source(
    config: JatConfig,
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    scale: float,
    mask: TokenMask,
) -> QueryKeyScores:
    """Return the scores that vote: those of queries and keys, or their standard scores."""
    if mask.part is not None:
        return PartScores(*part_features(query, key, scale, mask), scale, mask.part)
    if config.graph.standardize:
        query, key = standard_features(query, key, scale, mask)
    return QueryKeyScores(query, key, scale)


def map_source(config: JatConfig, scores: Tensor, mask: TokenMask) -> MapScores:
    """Return the scores of a ready-made map ``[B, H, L, L]`` that vote."""
    return MapScores(standard_map(scores, mask) if config.graph.standardize else scores)


def open_ballot(
    config: JatConfig,  # Over the heads at hand
    source: ScoreSource,
    mask: TokenMask,
) -> Ballot:
    """Return who votes on a batch, and by which rule: the voting keys, the nodes and ρ."""
    keys = select_keys(config, source, mask)
    nodes = mask.valid if config.graph.nodes == "all" else selected_nodes(keys, source, mask)
    rule = VoteRule.of(config, source)
    if config.graph.vote_rate is not None:
        rule = replace(rule, threshold=adaptive_threshold(config, rule, source, keys, mask))
    return Ballot(source, keys, rule, mask, nodes)


def selected_nodes(keys: VotingKeys, source: ScoreSource, mask: TokenMask) -> Tensor | None:
    """Return which tokens are voting keys, ``[B, H, L]`` bool; None if every token is."""
    return mask.valid if keys.index is None else key_places(keys, source) > 0


def key_places(keys: VotingKeys, source: ScoreSource) -> Tensor:  # [B|1, H|1, L]
    """Return 1 at each voting key, else 0."""
    index, valid = keys.index, keys.valid
    if index is None:
        everyone = torch.ones(1, 1, source.shape[2], dtype=torch.long, device=source.device)
        return everyone if valid is None else valid.long()
    chosen = torch.ones_like(index) if valid is None else valid.long().expand_as(index)
    # Padding entries of the index point at a position that may be chosen, too: add, don't set.
    return index.new_zeros(source.shape).scatter_add(2, index, chosen)
