"""Count the votes for every pair of queries."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.kernels.choice import implementation
from jat_graph.voting.rule import VoteRule, vote_limits


def count_votes(
    rule: VoteRule, scores: Tensor, norms: Tensor | None, rows: slice = slice(None)
) -> Tensor:
    """Count, for each pair of queries, the keys that vote for it.

    No L×L×L tensor is ever stored: the largest one is the result. No gradient flows through it.

    Args:
        rule: When a product is a vote; hard votes only.
        scores: Key scores, ``[B, H, L, U]``; NaN where masked.
        norms: max(1, ‖K_j‖), ``[B, H, U]``, or None.
        rows: The queries i to count for. (default: all)

    Returns:
        Counts in the dtype of ``scores``; the diagonal counts X_ii² > ρ.

    Shapes:
        - **output:** ``[B, H, rows, L]``

    Reference:
        Eq. 2 and 3 of the JAT paper.
    """
    threshold = rule.threshold.expand(scores.shape[:2])
    start, stop, _ = rows.indices(scores.size(2))
    counts: Tensor = _count_votes(
        scores.detach(), threshold, norms, rule.inclusive, rule.same_sign_only, start, stop
    )
    return counts


@torch.library.custom_op("jat_graph::count_votes", mutates_args=())
def _count_votes(
    scores: Tensor,
    threshold: Tensor,
    norms: Tensor | None,
    inclusive: bool,
    same_sign_only: bool,
    start: int,
    stop: int,
) -> Tensor:
    """Count; an opaque operator, so that torch.compile does not trace the loops."""
    batch, heads, length, _ = scores.shape
    columns, limits = flat_columns(scores, threshold, norms, inclusive)
    count = implementation(scores.device).count
    counts: Tensor = count(columns, limits, same_sign_only, start, max(start, stop))
    return counts.view(batch, heads, -1, length)


@_count_votes.register_fake
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
    return scores.new_empty(batch, heads, max(start, stop) - start, length)


def flat_columns(
    scores: Tensor,  # Key scores, [B, H, L, U]
    threshold: Tensor,  # ρ, [B, H]
    norms: Tensor | None,  # max(1, ‖K_j‖), [B, H, U], or None
    inclusive: bool,
) -> tuple[Tensor, Tensor]:  # [B·H, U, L], [B·H, U]
    """Return scores and limits in the form that the implementations take."""
    columns = scores.flatten(0, 1).transpose(1, 2).contiguous()
    limits = vote_limits(threshold, norms, inclusive).expand(*scores.shape[:2], scores.size(3))
    return columns, limits.flatten(0, 1).contiguous()
