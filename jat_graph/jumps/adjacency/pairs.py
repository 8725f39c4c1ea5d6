"""The paper's graph: tokens that score a key alike are joined, and when that is a vote."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jat_graph.core.compiling import steps
from jat_graph.core.masks import TokenMask
from jat_graph.core.tensors import recomputed
from jat_graph.jumps.adjacency.keys import draw, numbers_of_keys, positions_of_ranks, select_keys
from jat_graph.jumps.adjacency.scores import (
    BLOCK,
    MapScores,
    QueryKeyScores,
    ScoreSource,
    SelectedKeys,
)
from jat_graph.jumps.adjacency.standard import standard_features, standard_map
from jat_graph.jumps.config import JatConfig, PairGraph

# Soft votes that are held at a time: 4 MiB in float32.
SOFT_VOTES = 2**20


@dataclass(frozen=True)
class VoteRule:
    """When a product of two scores is a vote: the one place that knows ρ, signs and norms.

    With ``same_sign_only`` no negative score takes part in a hard vote: at a ρ of 0, where a
    product of 0 is an inclusive vote, it is one of scores of at least 0.

    Reference:
        Eq. 2 of the JAT paper; the variants are those of its released code.
    """

    threshold: Tensor  # ρ, [B|1, H|1], in the dtype of the scores
    inclusive: bool = False  # vote when the product equals ρ
    same_sign_only: bool = False  # two negative scores do not vote
    normalize_keys: bool = False  # divide products by max(1, ‖K_j‖)
    soft_temperature: float | None = None  # τ of the soft vote

    @classmethod
    def of(cls, graph: PairGraph, source: ScoreSource) -> VoteRule:
        """Return the rule of the settings of a graph, with the fixed ρ that they name."""
        row = graph.threshold[0] if isinstance(graph.threshold, tuple) else (graph.threshold,)
        threshold = torch.tensor([row], dtype=source.dtype, device=source.device)
        variants = graph.inclusive, graph.same_sign_only, graph.normalize_keys
        return cls(threshold, *variants, graph.soft_temperature)

    def product(self, left: Tensor, right: Tensor, norm: Tensor | None) -> Tensor:
        """Return the product that is compared with ρ; −∞ where its signs keep it from voting."""
        product = left * right if norm is None else left * right / norm
        if self.same_sign_only:
            product = product.masked_fill((left < 0) | (right < 0), -torch.inf)
        return product

    def settle(
        self,
        scores: Tensor,  # Key scores, NaN where masked, [B, H, L, U]
        norms: Tensor | None = None,  # max(1, ‖K_j‖), [B, H, U], or None
    ) -> tuple[Tensor, Tensor]:  # [B, H, U, L], [B, H, U]
        """Return columns and limits; a hard vote is a product within a column above its limit."""
        # The limit is the largest product that is no vote, to the bit; below 0 where 0 votes.
        columns, limits = scores.mT, self.threshold.unsqueeze(-1)
        if self.inclusive:
            limits = limits.nextafter(torch.full_like(limits, -torch.inf))
        if norms is not None:
            # Division by a norm and rounding keep the order of products: the votes are all those
            # above some number, which is searched with the vote itself.
            limits = limits.where(limits < 0, _largest_silent(limits.clamp(min=0), norms))
        limits = limits.expand(columns.shape[:3])
        if self.same_sign_only:
            columns = columns.masked_fill(columns < 0, torch.nan)
        if self.same_sign_only and self.inclusive:
            # Where a product of 0 votes, all of the others do. As ones they do it above 0.
            all_vote = (limits < 0).unsqueeze(-1) & (columns >= 0)
            columns, limits = columns.masked_fill(all_vote, 1.0), limits.clamp(min=0.0)
        return columns, limits


@torch.library.custom_op("jat_graph::largest_silent", mutates_args=())
def _largest_silent(limit: Tensor, norms: Tensor) -> Tensor:
    """Return the largest number that is at most ``limit`` after division by the norm."""
    # An opaque operator, so that torch.compile does not trace the loop.
    # Floats of one sign are ordered like the integers of the same bits.
    bits = torch.int64 if limit.dtype == torch.float64 else torch.int32

    def silent(number: Tensor) -> Tensor:
        return number.view(limit.dtype) / norms <= limit

    zero = torch.zeros_like(norms).view(bits)
    infinity = torch.full_like(norms, torch.inf).view(bits)
    # Rounding moves it by a few units in the last place, but for the tiniest numbers.
    guess = (limit * norms).view(bits)
    below, above = (guess - 4).clamp(min=0), (guess + 4).minimum(infinity)
    low = torch.where(silent(below), below, zero)
    high = torch.where(silent(above), infinity, above - 1)
    for _ in range(torch.iinfo(bits).bits):
        if limit.device.type == "cpu" and torch.equal(low, high):
            break  # elsewhere, asking would wait for the device
        middle = low + (high - low + 1) // 2
        found = silent(middle)
        low, high = torch.where(found, middle, low), torch.where(found, high, middle - 1)
    return low.view(limit.dtype)


@_largest_silent.register_fake
def _(limit: Tensor, norms: Tensor) -> Tensor:
    return torch.empty_like(norms)


def sum_soft_votes(
    rule: VoteRule, scores: Tensor, norms: Tensor | None, rows: slice = slice(None)
) -> Tensor:  # [B, H, rows, L]
    """Sum soft votes of what :meth:`VoteRule.settle` takes, for some queries i."""
    # In blocks of keys, computed again in backward. The sign gate stays hard; masked scores vote 0.
    batch, heads, length, num_keys = scores.shape
    scores = scores.contiguous()  # the sums of (i, k) and (k, i) then round alike
    threshold, temperature = rule.threshold[..., None, None, None], rule.soft_temperature
    assert temperature is not None
    number = scores[:, :, rows].size(2)

    # The running total stays outside: a checkpoint keeps its inputs, one L×L a block.
    def add_up(part: Tensor, norm: Tensor | None) -> Tensor:
        left, right = part[:, :, rows, None, :], part[:, :, None, :, :]
        masked = left.isnan() | right.isnan()
        if rule.same_sign_only:
            masked = masked | ((left < 0) & (right < 0))
        # NaN must not reach the sigmoid, whose gradient would spread it.
        product = left.nan_to_num() * right.nan_to_num()
        product = product if norm is None else product / norm[:, :, None, None, :]
        votes = torch.sigmoid((product - threshold) / temperature)
        return votes.masked_fill(masked, 0.0).sum(-1)

    total = scores.new_zeros(batch, heads, number, length)
    for keys in steps(num_keys, SOFT_VOTES, batch * heads * number * length):
        norm = None if norms is None else norms[..., keys]
        total = total + recomputed(add_up, scores[..., keys], norm)
    return total


@dataclass(frozen=True)
class PairAdjacency:
    """All that fixes A of some heads: the scores, the keys that vote, and the rule."""

    source: ScoreSource
    keys: SelectedKeys
    rule: VoteRule
    mask: TokenMask
    nodes: Tensor | None  # tokens that are nodes of the graph, bool [B|1, H|1, L]; None if all are

    @classmethod
    def of_heads(
        cls, config: JatConfig, query: Tensor, key: Tensor, scale: float, mask: TokenMask
    ) -> PairAdjacency:
        """Return the graph of queries and keys ``[B, H, L, D]``; the config is of these heads."""
        if isinstance(config.jump_graph, PairGraph) and config.jump_graph.standardize:
            query, key = standard_features(query, key, scale, mask)
        return cls.of_scores(config, QueryKeyScores(query, key, scale), mask)

    @classmethod
    def of_map(cls, config: JatConfig, scores: Tensor, mask: TokenMask) -> PairAdjacency:
        """Return the graph of a ready-made map of scores ``[B, H, L, L]``."""
        if isinstance(config.jump_graph, PairGraph) and config.jump_graph.standardize:
            scores = standard_map(scores, mask)
        return cls.of_scores(config, MapScores(scores), mask)

    @classmethod
    def of_scores(cls, config: JatConfig, source: ScoreSource, mask: TokenMask) -> PairAdjacency:
        """Return the graph of scores that vote as they are: choose the keys, the nodes and ρ."""
        graph = config.jump_graph
        assert isinstance(graph, PairGraph)
        rule = VoteRule.of(graph, source)
        if graph.key_selection == "all" and graph.vote_rate is None:
            keys = SelectedKeys(None, mask.voting)  # there is nothing to choose
        else:
            keys = select_keys(config, source, mask)
        if graph.vote_rate is not None:
            rule = replace(rule, threshold=adaptive_threshold(config, rule, source, keys, mask))
        nodes = mask.valid
        if graph.nodes == "selected" and keys.index is not None:
            nodes = _count_at(keys, source) > 0
        return cls(source, keys, rule, mask, nodes)

    @property
    def selected(self) -> Tensor | None:
        """The nodes between which alone scores propagate, as ``nodes``; None for all."""
        return None if self.nodes is self.mask.valid else self.nodes

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
        visible = self.keys.visible(keys, rows, self.nodes, self.mask, self.source)
        if visible is not None:
            scores = scores.masked_fill(~visible, torch.nan)
        return scores, self.source.key_norms(index) if self.rule.normalize_keys else None

    def columns(
        self, keys: slice = slice(None), rows: slice = slice(None)
    ) -> tuple[Tensor, Tensor]:  # [B, H, u, rows], [B, H, u]
        """Return what kernels take of some voting keys: :meth:`VoteRule.settle` of their scores."""
        return self.rule.settle(*self.key_scores(keys, rows))

    def column_blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield :meth:`columns` of the voting keys in blocks."""
        for keys in steps(self.num_keys, BLOCK, self.source.shape.numel()):
            yield self.columns(keys)

    def voters(self) -> Tensor:  # [B|1, H|1, L|1]
        """Return how many voting keys each query sees, at least 1, for the share of Eq. 3."""
        if self.mask.pairs is not None:
            every = slice(None)
            visible = self.keys.visible(every, every, self.nodes, self.mask, self.source)
            assert visible is not None
            count = visible.sum(-1)
        elif self.mask.causal:
            count = _count_at(self.keys, self.source).cumsum(-1)
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

    def soft_votes(self) -> Tensor:  # [B, H, L, L]
        """Return the sum of the soft votes on each pair, 0 where there is no edge."""
        votes = sum_soft_votes(self.rule, *self.key_scores())
        return votes.masked_fill(~self.edge_mask(), 0.0)

    def clear_masked(self, votes: Tensor, rows: slice) -> None:
        """Set hard votes ``[B, H, rows, L]`` to 0 on the diagonal, and where M says so."""
        # Columns that no row may see may be left out.
        if self.mask.causal:
            votes.tril_(rows.start - 1)
        else:
            # PyTorch's compiler warns of `diagonal`.
            votes.view(*votes.shape[:2], -1)[..., rows.start :: votes.size(-1) + 1].zero_()
        if self.mask.pairs is not None:
            votes.masked_fill_(~self.mask.pairs[:, :, rows, : votes.size(-1)], 0.0)


def _count_at(keys: SelectedKeys, source: ScoreSource) -> Tensor:  # [B|1, H|1, L]
    """Return 1 at each voting key, else 0."""
    index, valid = keys.index, keys.valid
    if index is None:
        everyone = torch.ones(1, 1, source.shape[2], dtype=torch.long, device=source.device)
        return everyone if valid is None else valid.long()
    chosen = torch.ones_like(index) if valid is None else valid.long().expand_as(index)
    # Padding entries of the index point at a position that may be chosen, too: add, don't set.
    return index.new_zeros(source.shape).scatter_add(2, index, chosen)


# Triples of tokens whose products fix the threshold of ``vote_rate``.
SAMPLED_TRIPLES = 16384


def adaptive_threshold(
    config: JatConfig, rule: VoteRule, source: ScoreSource, keys: SelectedKeys, mask: TokenMask
) -> Tensor:  # [B, H]
    """Return the (1 − vote_rate) quantile of the products as voted on, without a gradient."""
    # The quantile is a product itself, of sampled triples (i, k, j), i ≠ k, j among the voting
    # keys. Below 0 it is clamped, with a warning; a sequence without a pair gets infinity.
    assert isinstance(config.jump_graph, PairGraph)
    rate = config.jump_graph.vote_rate or 0.0
    *triples, pairless = _sampled_triples(config, source, mask)
    left, right, voter = (t.expand(*source.shape[:2], -1) for t in triples)
    products = torch.full(left.shape, torch.inf, dtype=source.dtype, device=source.device)
    with torch.no_grad():
        for block in steps(keys.number(source), BLOCK, source.shape.numel()):
            index = keys.positions(block, source)
            scores = source.columns(index)
            here = (voter >= block.start) & (voter < block.stop)
            column = (voter - block.start).clamp(0, scores.size(3) - 1)
            flat = scores.flatten(2)
            x_left = flat.gather(2, left * scores.size(3) + column)
            x_right = flat.gather(2, right * scores.size(3) + column)
            norm = source.key_norms(index).gather(2, column) if rule.normalize_keys else None
            products = torch.where(here, rule.product(x_left, x_right, norm), products)
        products.masked_fill_(pairless, torch.inf)
        rank = max(1, math.ceil((1 - rate) * SAMPLED_TRIPLES))
        threshold = products.kthvalue(rank, dim=-1).values
        if not torch.compiler.is_compiling() and bool((threshold < 0).any()):
            warnings.warn(f"vote_rate={rate} needs a threshold below 0; 0 is used", stacklevel=2)
    return threshold.clamp(min=0.0)


def _sampled_triples(
    config: JatConfig, source: ScoreSource, mask: TokenMask
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return positions i and k, the voting key's rank, and which sequences have no pair."""
    length, device = source.shape[2], source.device
    valid = mask.valid
    if valid is None:
        valid = torch.ones(1, 1, length, dtype=torch.bool, device=device)
    count = valid.sum(-1, keepdim=True)

    def ranks(purpose: int, size: Tensor) -> Tensor:
        return draw(config.seed, SAMPLED_TRIPLES, purpose, device) * size >> 31

    first = ranks(2, count)
    second = (first + 1 + ranks(3, (count - 1).clamp(min=0))) % count.clamp(min=1)
    voter = ranks(4, numbers_of_keys(config, count))
    if config.jump_graph.key_selection == "all":
        voter = positions_of_ranks(valid, voter)  # every position is an entry of the voting keys
    left, right = (positions_of_ranks(valid, rank) for rank in (first, second))
    return left, right, voter, count < 2
