"""Everything that fixes the adjacency of a batch: scores, voting keys, the rule, the mask."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from jat_graph.config import JatConfig
from jat_graph.key_selection import (
    VotingKeys,
    by_count,
    draw,
    number_of_keys,
    select_keys,
    valid_positions,
)
from jat_graph.masks import TokenMask
from jat_graph.scores import BLOCK, ScoreSource
from jat_graph.votes import VoteRule, vote_product

# Triples of tokens whose products fix the threshold of ``vote_rate``.
SAMPLED_TRIPLES = 16384


@dataclass(frozen=True)
class Ballot:
    """Who votes on which pairs, and by which rule.

    Args:
        source: Scores ``[B, H, L, L]``.
        keys: The voting keys.
        rule: When a product is a vote.
        mask: Which query may attend to which key.
        nodes: Tokens that are nodes of the graph, ``[B|1, H|1, L]`` bool; None if all are.
        normalize_keys: Divide products by max(1, ‖K_j‖).
    """

    source: ScoreSource
    keys: VotingKeys
    rule: VoteRule
    mask: TokenMask
    nodes: Tensor | None
    normalize_keys: bool

    @property
    def num_keys(self) -> int:
        """Number of entries of the voting keys, U."""
        return self.source.shape[2] if self.keys.index is None else self.keys.index.size(-1)

    def key_scores(self, keys: slice = slice(None)) -> tuple[Tensor, Tensor | None]:
        """Return the scores to some of the voting keys, NaN where masked, and their norms.

        Args:
            keys: Which entries of the voting keys. (default: all)

        Returns:
            Scores ``[B, H, L, u]``, and max(1, ‖K_j‖) ``[B, H, u]`` or None.
        """
        index = self._index(keys)
        scores = self.source.columns(index)
        visible = self._visible(keys)
        if visible is not None:
            scores = scores.masked_fill(~visible, torch.nan)
        return scores, self.source.key_norms(index) if self.normalize_keys else None

    def key_blocks(self, elements: int) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
        """Yield the voting keys in blocks, with their scores and norms.

        Args:
            elements: Largest number of scores in a block, if one key allows it.

        Yields:
            Which keys, and what :meth:`key_scores` returns for them.
        """
        batch, heads, length = self.source.shape
        step = max(1, elements // max(1, batch * heads * length))
        for start in range(0, self.num_keys, step):
            keys = slice(start, min(start + step, self.num_keys))
            yield keys, *self.key_scores(keys)

    def voters(self) -> Tensor:
        """Return how many voting keys each query sees, at least 1, for the share of Eq. 3.

        Shapes:
            - **output:** ``[B|1, H|1, L|1]``
        """
        valid = self.keys.valid
        if self.mask.causal or self.mask.pairs is not None:
            visible = self._visible(slice(None))
            count = torch.zeros(1) if visible is None else visible.sum(-1)
        elif valid is None:
            count = torch.full((1, 1, 1), self.num_keys)
        else:
            count = valid.sum(-1, keepdim=True)
        return count.clamp(min=1).to(self.source.device, self.source.dtype)

    def edge_mask(self) -> Tensor:
        """Return which pairs may have an edge: i ≠ k, and M_ik; ``[B|1, H|1, L, L]`` bool."""
        length, device = self.source.shape[2], self.source.device
        off_diagonal = ~torch.eye(length, dtype=torch.bool, device=device)[None, None]
        allowed = self.mask.allowed(length, device)
        return off_diagonal if allowed is None else off_diagonal & allowed

    def _index(self, keys: slice) -> Tensor | None:
        if self.keys.index is not None:
            return self.keys.index[..., keys]
        if keys == slice(None) or keys.stop - keys.start == self.num_keys:
            return None
        batch, heads, length = self.source.shape
        return torch.arange(length, device=self.source.device)[keys].expand(batch, heads, -1)

    def _visible(self, keys: slice) -> Tensor | None:
        """Return M_ij for nodes i and voting keys j, ``[B|1, H|1, L|1, u]``, or None."""
        parts = []
        if self.keys.valid is not None:
            parts.append(self.keys.valid[..., None, keys])
        if self.nodes is not None:
            parts.append(self.nodes.unsqueeze(-1))
        length = self.source.shape[2]
        position = torch.arange(length, device=self.source.device)
        if self.mask.causal:
            index = position[None, None] if self.keys.index is None else self.keys.index
            parts.append(index[..., None, keys] <= position.unsqueeze(-1))
        if self.mask.pairs is not None:
            parts.append(self._pairs_at(self.mask.pairs, keys))
        if not parts:
            return None
        visible = parts[0]
        for part in parts[1:]:
            visible = visible & part
        return visible

    def _pairs_at(self, pairs: Tensor, keys: slice) -> Tensor:
        index = self._index(keys)
        if index is None:
            return pairs
        batch, heads, length = self.source.shape
        index = index.unsqueeze(2).expand(-1, -1, length, -1)
        return pairs.expand(batch, heads, -1, -1).gather(3, index)


def open_ballot(config: JatConfig, source: ScoreSource, mask: TokenMask) -> Ballot:
    """Choose the voting keys, the nodes and ρ for a batch.

    Args:
        config: The settings, over the heads at hand.
        source: Scores ``[B, H, L, L]``.
        mask: Which query may attend to which key.

    Returns:
        The ballot.

    Raises:
        ValueError: If the key selection or the threshold does not fit the mask or the heads.
    """
    keys = select_keys(config, source, mask)
    nodes = mask.valid if config.nodes == "all" else selected_nodes(keys, source, mask)
    if config.vote_rate is not None:
        threshold = _adaptive_threshold(config, source, keys, mask)
    else:
        threshold = _fixed_threshold(config, source)
    rule = VoteRule(threshold, config.inclusive, config.same_sign_only, config.soft_temperature)
    return Ballot(source, keys, rule, mask, nodes, config.normalize_keys)


def selected_nodes(keys: VotingKeys, source: ScoreSource, mask: TokenMask) -> Tensor | None:
    """Return the positions of the voting keys as a mask of tokens.

    Args:
        keys: The voting keys.
        source: Scores, for their shape.
        mask: Which tokens are padding, where every position votes.

    Returns:
        ``[B, H, L]`` bool; None if every token is a node.
    """
    if keys.index is None:
        return mask.valid
    chosen = torch.ones_like(keys.index, dtype=torch.bool)
    if keys.valid is not None:
        chosen = chosen & keys.valid
    nodes = torch.zeros(source.shape, dtype=torch.int32, device=source.device)
    # Padding entries of the index point at a position that may be chosen, too: add, don't set.
    return nodes.scatter_add(2, keys.index, chosen.int()) > 0


def _fixed_threshold(config: JatConfig, source: ScoreSource) -> Tensor:
    heads = source.shape[1]
    if isinstance(config.threshold, tuple):
        row = config.for_layer(0, tuple(range(heads))).threshold
        if len(config.threshold) != 1:
            raise ValueError(
                f"threshold table must have one row for one layer, got {len(config.threshold)}"
            )
        return torch.tensor(row, dtype=source.dtype, device=source.device)  # [1, H]
    return torch.full((1, 1), config.threshold, dtype=source.dtype, device=source.device)


def _adaptive_threshold(
    config: JatConfig, source: ScoreSource, keys: VotingKeys, mask: TokenMask
) -> Tensor:
    """Return the (1 − vote_rate) quantile of sampled products, ``[B, H]``, without a gradient."""
    with torch.no_grad():
        products = _sampled_products(config, source, keys, mask)
        rank = max(1, -int(-(1 - config.vote_rate) * SAMPLED_TRIPLES // 1))  # type: ignore[operator]
        threshold = products.kthvalue(min(rank, SAMPLED_TRIPLES), dim=-1).values
        if not torch.compiler.is_compiling() and bool((threshold < 0).any()):
            warnings.warn(
                f"vote_rate={config.vote_rate} asks for a threshold below 0; 0 is used",
                stacklevel=2,
            )
    return threshold.clamp(min=0.0)


def _sampled_products(
    config: JatConfig, source: ScoreSource, keys: VotingKeys, mask: TokenMask
) -> Tensor:
    """Return the products as voted on of sampled triples (i, k, j), i ≠ k, ``[B, H, triples]``.

    A pair of negative scores that ``same_sign_only`` keeps from voting counts as −∞, and a sequence
    without a pair has only +∞, so that nothing joins.
    """
    batch, heads, length = source.shape
    left, right, voter, pairless = _sampled_triples(config, source, mask)
    left, right, voter = (t.expand(batch, heads, -1) for t in (left, right, voter))
    open_rule = VoteRule(torch.zeros(1, 1, device=source.device))
    ballot = Ballot(source, keys, open_rule, TokenMask(), None, config.normalize_keys)
    products = torch.full(left.shape, torch.inf, dtype=source.dtype, device=source.device)
    for block, scores, norms in ballot.key_blocks(BLOCK):
        here = (voter >= block.start) & (voter < block.stop)
        column = (voter - block.start).clamp(0, block.stop - block.start - 1)
        flat = scores.flatten(2)
        x_left, x_right = (
            flat.gather(2, token * scores.size(3) + column) for token in (left, right)
        )
        norm = None if norms is None else norms.gather(2, column)
        product = vote_product(x_left, x_right, norm)
        if config.same_sign_only:
            product = product.masked_fill((x_left < 0) & (x_right < 0), -torch.inf)
        products = torch.where(here, product, products)
    return products.masked_fill(pairless, torch.inf)


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
    voter = ranks(4, by_count(config, count, length, number_of_keys))
    position = valid_positions(valid)
    if config.key_selection == "all":
        voter = position.gather(-1, voter)  # every position is an entry of the voting keys
    return position.gather(-1, first), position.gather(-1, second), voter, count < 2
