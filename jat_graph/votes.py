"""Votes: which keys join which pairs of queries, counted without ever storing L×L×L."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Pairs that are counted at a time: 4 MiB in float32.
TILE = 2**20


@dataclass(frozen=True)
class VoteRule:
    """When a product of two scores is a vote.

    Args:
        threshold: ρ, ``[B|1, H|1]``, in the dtype of the scores.
        inclusive: Vote when the product equals ρ.
        same_sign_only: Two negative scores do not vote.
        soft_temperature: τ of the soft vote, or None.

    Reference:
        Eq. 2 of the JAT paper; the variants are those of its released code.
    """

    threshold: Tensor
    inclusive: bool = False
    same_sign_only: bool = False
    soft_temperature: float | None = None

    def votes(self, left: Tensor, right: Tensor, norm: Tensor | None, threshold: Tensor) -> Tensor:
        """Return the hard votes; NaN, a masked score, never votes.

        Args:
            left: Scores of queries i with the key.
            right: Scores of queries k with the key, broadcastable against ``left``.
            norm: max(1, ‖K_j‖), broadcastable, or None.
            threshold: ρ, broadcastable.

        Returns:
            Bool, the broadcast shape.
        """
        product = vote_product(left, right, norm)
        votes = product >= threshold if self.inclusive else product > threshold
        if self.same_sign_only:
            votes = votes & ~((left < 0) & (right < 0))
        return votes

    def soft_votes(
        self, left: Tensor, right: Tensor, norm: Tensor | None, threshold: Tensor
    ) -> Tensor:
        """Return the soft votes; the sign gate stays hard, a masked score votes 0.

        Args:
            left: Scores of queries i with the key.
            right: Scores of queries k with the key, broadcastable against ``left``.
            norm: max(1, ‖K_j‖), broadcastable, or None.
            threshold: ρ, broadcastable.

        Returns:
            Numbers in [0, 1], the broadcast shape.
        """
        temperature = self.soft_temperature
        if temperature is None:
            raise ValueError("soft_temperature must be a number for soft votes, got None")
        masked = left.isnan() | right.isnan()
        if self.same_sign_only:
            masked = masked | ((left < 0) & (right < 0))
        # NaN must not reach the sigmoid, whose gradient would spread it.
        product = vote_product(left.nan_to_num(), right.nan_to_num(), norm)
        votes = torch.sigmoid((product - threshold) / temperature)
        return votes.masked_fill(masked, 0.0)


def vote_product(left: Tensor, right: Tensor, norm: Tensor | None) -> Tensor:
    """Return the product that is compared with ρ: X_ij X_kj, over max(1, ‖K_j‖) if given.

    Args:
        left: Scores of queries i.
        right: Scores of queries k, broadcastable against ``left``.
        norm: Divisor, broadcastable, or None.

    Returns:
        The products, the broadcast shape.
    """
    product = left * right
    return product if norm is None else product / norm


def count_votes(
    rule: VoteRule, scores: Tensor, norms: Tensor | None, rows: slice = slice(None)
) -> Tensor:
    """Count, for each pair of queries, the keys that vote for it.

    Works one key at a time on tiles of pairs, so that the largest tensor is the result.

    Args:
        rule: When a product is a vote.
        scores: Key scores, ``[B, H, L, U]``; NaN where masked.
        norms: max(1, ‖K_j‖), ``[B, H, U]``, or None.
        rows: The queries i to count for; hard votes only. (default: all)

    Returns:
        Counts (or sums of soft votes) in the dtype of ``scores``; the diagonal counts X_ij² > ρ.

    Shapes:
        - **output:** ``[B, H, rows, L]``
    """
    if rule.soft_temperature is not None:
        return _sum_soft_votes(rule, scores, norms)
    threshold = rule.threshold.expand(scores.shape[:2])
    start, stop, _ = rows.indices(scores.size(2))
    counts: Tensor = _count_hard_votes(
        scores.detach(), threshold, norms, rule.inclusive, rule.same_sign_only, start, stop
    )
    return counts


@torch.library.custom_op("jat_graph::count_votes", mutates_args=())
def _count_hard_votes(
    scores: Tensor,
    threshold: Tensor,
    norms: Tensor | None,
    inclusive: bool,
    same_sign_only: bool,
    start: int,
    stop: int,
) -> Tensor:
    """Count hard votes; an opaque operator, so that torch.compile does not unroll its loops."""
    batch, heads, length, num_keys = scores.shape
    rule = VoteRule(threshold.reshape(-1, 1, 1), inclusive, same_sign_only)
    columns = scores.flatten(0, 1).transpose(1, 2).contiguous()  # [BH, U, L]
    divisors = None if norms is None else norms.reshape(-1, num_keys, 1, 1)
    counts = scores.new_zeros(batch * heads, stop - start, length)
    graphs = max(1, TILE // max(1, counts[:1].numel()))
    height = max(1, TILE // length)
    for graph in range(0, batch * heads, graphs):
        for row in range(start, stop, height):
            block = slice(graph, graph + graphs)
            queries = slice(row, min(row + height, stop))
            tile = counts[block, queries.start - start : queries.stop - start]
            norm = None if divisors is None else divisors[block]
            _count_tile(rule, tile, columns[block], norm, rule.threshold[block], queries)
    return counts.view(batch, heads, stop - start, length)


def _count_tile(
    rule: VoteRule,
    counts: Tensor,  # [g, r, L], written
    columns: Tensor,  # [g, U, L]
    divisors: Tensor | None,  # [g, U, 1, 1]
    threshold: Tensor,  # [g, 1, 1]
    rows: slice,
) -> None:
    # In place, votes as 0.0 and 1.0: a quarter of the time of the same thing through bools.
    votes = torch.empty_like(counts)
    for key in range(columns.size(1)):
        column = columns[:, key]
        left, right = column[:, rows, None], column[:, None, :]
        torch.mul(left, right, out=votes)
        if divisors is not None:
            votes.div_(divisors[:, key])
        if rule.inclusive:
            votes.ge_(threshold)
        else:
            votes.gt_(threshold)
        if rule.same_sign_only:
            votes.masked_fill_((left < 0) & (right < 0), 0.0)
        counts.add_(votes)


@_count_hard_votes.register_fake
def _(
    scores: Tensor,
    threshold: Tensor,
    norms: Tensor | None,
    inclusive: bool,
    same_sign_only: bool,
    start: int,
    stop: int,
) -> Tensor:
    batch, heads, length, _ = scores.shape
    return scores.new_empty(batch, heads, stop - start, length)


def _sum_soft_votes(rule: VoteRule, scores: Tensor, norms: Tensor | None) -> Tensor:
    """Sum soft votes over blocks of keys, computed again in backward instead of stored."""
    batch, heads, length, num_keys = scores.shape
    threshold = rule.threshold[..., None, None, None]
    block = max(1, TILE // max(1, batch * heads * length * length))

    # The running total stays outside: a checkpoint keeps its inputs, one L×L a block.
    def count(part: Tensor, norm: Tensor | None) -> Tensor:
        norm = None if norm is None else norm[:, :, None, None, :]
        left, right = part[:, :, :, None, :], part[:, :, None, :, :]
        return rule.soft_votes(left, right, norm, threshold).sum(-1)

    total = scores.new_zeros(batch, heads, length, length)
    for start in range(0, num_keys, block):
        keys = slice(start, start + block)
        norm = None if norms is None else norms[..., keys]
        total = total + checkpoint(count, scores[..., keys], norm, use_reentrant=False)
    return total
