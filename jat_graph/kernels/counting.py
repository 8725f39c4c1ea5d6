"""Count the votes for every pair of queries."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.kernels.choice import implementation


def count_votes(columns: Tensor, limits: Tensor, rows: slice = slice(None)) -> Tensor:
    """Count, for each pair of queries, the keys that vote for it.

    No L×L×L tensor is ever stored: the largest one is the result. No gradient flows through it.

    Args:
        columns: Key scores, ``[B, H, U, L]``; NaN, which never votes, where masked.
        limits: The largest product that is no vote, ``[B, H, U]``.
        rows: The queries i to count for. (default: all)

    Returns:
        Counts in the dtype of ``columns``; the diagonal counts squares above the limits.

    Shapes:
        - **output:** ``[B, H, rows, L]``

    Reference:
        Eq. 2 and 3 of the JAT paper.
    """
    start, stop, _ = rows.indices(columns.size(-1))
    counts: Tensor = _count_votes(columns.detach(), limits.detach(), start, max(start, stop))
    return counts


@torch.library.custom_op("jat_graph::count_votes", mutates_args=())
def _count_votes(columns: Tensor, limits: Tensor, start: int, stop: int) -> Tensor:
    """Count; an opaque operator, so that torch.compile does not trace the loops."""
    batch, heads, _, length = columns.shape
    flat = (tensor.flatten(0, 1).contiguous() for tensor in (columns, limits))
    counts: Tensor = implementation(columns.device).count(*flat, start, stop)
    return counts.view(batch, heads, -1, length)


@_count_votes.register_fake
def _(columns: Tensor, limits: Tensor, start: int, stop: int) -> Tensor:
    batch, heads, _, length = columns.shape
    return columns.new_empty(batch, heads, stop - start, length)
