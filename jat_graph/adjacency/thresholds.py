"""An adaptive ρ: the quantile of sampled products."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from jat_graph.adjacency.keys import numbers_of_keys
from jat_graph.adjacency.sampling import draw, positions_of_ranks
from jat_graph.adjacency.scores import BLOCK, ScoreSource, SelectedKeys
from jat_graph.adjacency.votes import VoteRule
from jat_graph.config import JatConfig, PairGraph
from jat_graph.masks.tokens import TokenMask

# Triples of tokens whose products fix the threshold of ``vote_rate``.
SAMPLED_TRIPLES = 16384


def adaptive_threshold(
    config: JatConfig, rule: VoteRule, source: ScoreSource, keys: SelectedKeys, mask: TokenMask
) -> Tensor:  # [B, H]
    """Return the (1 − vote_rate) quantile of the products as voted on, without a gradient.

    The quantile is a product itself, of sampled triples (i, k, j), i ≠ k, j among the voting keys.
    Below 0 it is clamped, with a warning; a sequence without a pair gets infinity.
    """
    assert isinstance(config.jump_graph, PairGraph)
    rate = config.jump_graph.vote_rate or 0.0
    *triples, pairless = _sampled_triples(config, source, mask)
    left, right, voter = (t.expand(*source.shape[:2], -1) for t in triples)
    products = torch.full(left.shape, torch.inf, dtype=source.dtype, device=source.device)
    with torch.no_grad():
        for block in keys.slices(source, BLOCK):
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
            warnings.warn(f"vote_rate={rate} asks for a threshold below 0; 0 is used", stacklevel=2)
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
    voter = ranks(4, numbers_of_keys(config, count, length))
    if config.jump_graph.key_selection == "all":
        voter = positions_of_ranks(valid, voter)  # every position is an entry of the voting keys
    left, right = (positions_of_ranks(valid, rank) for rank in (first, second))
    return left, right, voter, count < 2
