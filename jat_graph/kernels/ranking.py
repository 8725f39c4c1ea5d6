"""Sort the tokens by their scores with each key, and find how far each of them joins."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.kernels.choice import implementation
from jat_graph.kernels.counting import flat_columns
from jat_graph.voting.rule import VoteRule


class Ranking(NamedTuple):
    """The threshold graph of every key: an order of the tokens, and whom each of them joins.

    A token joins the strongest tokens of its own sign: the first or the last places of the order.

    Args:
        order: Tokens by falling score with the key: positive ones that join somebody from the left
            end, negative ones from the right end, strongest first. A place between them, which
            nobody reaches, may hold -1.
        reach: How far the token at a place joins: c > 0 joins the places 0 to c - 1, -c < 0 the
            places L - c to L - 1, and 0 joins nobody. A token may be among those that it joins.

    Shapes:
        - ``order``, ``reach``: ``[B, H, U, L]`` int32

    Reference:
        Mahadev & Peled, *Threshold Graphs and Related Topics*, 1995.
    """

    order: Tensor
    reach: Tensor


def rank_tokens(rule: VoteRule, scores: Tensor, norms: Tensor | None) -> Ranking:
    """Return the order of the tokens and their reach for every key.

    The reach is searched with the vote itself, X_ij · X_kj > ρ as it rounds, not with ρ / X_ij.

    Args:
        rule: When a product is a vote; hard votes only.
        scores: Key scores, ``[B, H, L, U]``; NaN where masked.
        norms: max(1, ‖K_j‖), ``[B, H, U]``, or None.

    Returns:
        The ranking.

    Shapes:
        - **output:** two tensors ``[B, H, U, L]`` int32

    Reference:
        Eq. 2 of the JAT paper, one key at a time; Mahadev & Peled, *Threshold Graphs and Related
        Topics*, 1995.
    """
    threshold = rule.threshold.expand(scores.shape[:2])
    order, reach = _rank_tokens(
        scores.detach(), threshold, norms, rule.inclusive, rule.same_sign_only
    )
    return Ranking(order, reach)


@torch.library.custom_op("jat_graph::rank_tokens", mutates_args=())
def _rank_tokens(
    scores: Tensor,
    threshold: Tensor,
    norms: Tensor | None,
    inclusive: bool,
    same_sign_only: bool,
) -> tuple[Tensor, Tensor]:
    """Rank; an opaque operator, so that torch.compile does not trace the loops."""
    batch, heads, length, num_keys = scores.shape
    columns, limits = flat_columns(scores, threshold, norms, inclusive)
    order, reach = implementation(scores.device).rank(columns, limits, same_sign_only)
    shape = batch, heads, num_keys, length
    return order.view(shape), reach.view(shape)


@_rank_tokens.register_fake
def _(
    scores: Tensor,
    threshold: Tensor,
    norms: Tensor | None,
    inclusive: bool,
    same_sign_only: bool,
) -> tuple[Tensor, Tensor]:
    batch, heads, length, num_keys = scores.shape
    shape = batch, heads, num_keys, length
    return scores.new_empty(shape, dtype=torch.int32), scores.new_empty(shape, dtype=torch.int32)
