"""Rank tokens in plain torch: a sort, and a search with the vote itself."""

from __future__ import annotations

import torch
from torch import Tensor


def rank(
    columns: Tensor,  # Key scores, NaN where masked, [G, U, L]
    limits: Tensor,  # The largest product that is no vote, [G, U]
) -> tuple[Tensor, Tensor]:  # [G, U, L] int32
    """Return the tokens by falling score with each key, and how far each of them joins."""
    length = columns.size(-1)
    # Stable: a masked score follows the zeros, because it was put to the end before.
    masked = columns.isnan().byte().argsort(dim=-1, stable=True)
    scores = columns.gather(-1, masked)
    ranked, order = scores.nan_to_num(nan=0.0).sort(dim=-1, descending=True, stable=True)
    scores, order = scores.gather(-1, order), masked.gather(-1, order)
    positive = scores >= 0
    low = torch.zeros_like(order)  # the strongest `low` of its own sign join
    high = torch.full_like(order, length)  # from `high` on none does
    for _ in range(length.bit_length()):
        middle = (low + high) // 2
        place = torch.where(positive, middle, length - 1 - middle).clamp(0, length - 1)
        joins = scores * ranked.gather(-1, place) > limits.unsqueeze(-1)
        joins = joins & (low < high)
        low = torch.where(joins, middle + 1, low)
        high = torch.where(joins, high, torch.minimum(high, middle))
    return order.int(), torch.where(positive, low, -low).int()
