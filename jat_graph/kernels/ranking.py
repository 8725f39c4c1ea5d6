"""Sort the tokens by their scores with each key, and find how far each of them joins."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.kernels.choice import implementation


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


def rank_tokens(columns: Tensor, limits: Tensor) -> Ranking:
    """Return the order of the tokens and their reach for every key.

    The reach is searched with the vote itself, X_ij · X_kj > limit as it rounds, not with a
    quotient.

    Args:
        columns: Key scores, ``[B, H, U, L]``; NaN, which never votes, where masked. Where a limit
            is below 0, only tokens that are masked for every key may be, as zeros reach them.
        limits: The largest product that is no vote, ``[B, H, U]``.

    Returns:
        The ranking.

    Shapes:
        - **output:** two tensors ``[B, H, U, L]`` int32

    Reference:
        Eq. 2 of the JAT paper, one key at a time; Mahadev & Peled, *Threshold Graphs and Related
        Topics*, 1995.
    """
    return Ranking(*_rank_tokens(columns.detach(), limits.detach()))


@torch.library.custom_op("jat_graph::rank_tokens", mutates_args=())
def _rank_tokens(columns: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Rank; an opaque operator, so that torch.compile does not trace the loops."""
    flat = (tensor.flatten(0, 1).contiguous() for tensor in (columns, limits))
    order, reach = implementation(columns.device).rank(*flat)
    return order.view(columns.shape), reach.view(columns.shape)


@_rank_tokens.register_fake
def _(columns: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    order = torch.empty_like(columns, dtype=torch.int32, memory_format=torch.contiguous_format)
    return order, torch.empty_like(order)
