"""Votes of the paper's rule: which products of two scores join a pair of queries (Eq. 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from jat_graph.adjacency.scores import ScoreSource
from jat_graph.config import PairGraph

# Soft votes that are held at a time: 4 MiB in float32.
BLOCK = 2**20


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
    # In blocks of keys, computed again in backward instead of stored. The sign gate stays hard; a
    # masked score votes 0.
    batch, heads, length, num_keys = scores.shape
    scores = scores.contiguous()  # the sums of (i, k) and (k, i) then round alike
    threshold, temperature = rule.threshold[..., None, None, None], rule.soft_temperature
    assert temperature is not None
    number = len(range(*rows.indices(length)))
    block = max(1, BLOCK // max(1, batch * heads * number * length))

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
    for start in range(0, num_keys, block):
        keys = slice(start, start + block)
        norm = None if norms is None else norms[..., keys]
        total = total + checkpoint(add_up, scores[..., keys], norm, use_reentrant=False)
    return total
