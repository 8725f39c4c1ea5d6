"""Rank tokens on CUDA: torch's sort, and in Triton a search with the vote itself."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

# Scores that are sorted at a time: the sort holds several times as much.
BLOCK = 2**24
# Places that a program searches for.
PLACES = 256


def rank(
    columns: Tensor,  # Key scores, NaN where masked, [G, U, L]
    limits: Tensor,  # The largest product that is no vote, [G, U]
) -> tuple[Tensor, Tensor]:  # [G, U, L] int32
    """Return the tokens by falling score with each key, and how far each of them joins.

    A masked token joins nobody; it stands between the signs, where a score of zero that votes
    reaches it, so its features must be zero.

    Reference:
        Mahadev & Peled, *Threshold Graphs and Related Topics*, 1995.
    """
    length = columns.size(-1)
    order = torch.empty(columns.shape, dtype=torch.int32, device=columns.device)
    reach = torch.empty_like(order)
    scores, limit = columns.view(-1, length), limits.view(-1)
    orders, reaches = order.view(-1, length), reach.view(-1, length)
    step = max(1, BLOCK // length)
    with torch.cuda.device_of(columns):
        for start in range(0, len(scores), step):
            rows = slice(start, start + step)
            _rank_rows(scores[rows], limit[rows], orders[rows], reaches[rows])
    return order, reach


def _rank_rows(
    columns: Tensor,  # [R, L]
    limits: Tensor,  # [R]
    order: Tensor,  # [R, L], written
    reach: Tensor,  # [R, L], written
) -> None:
    length = columns.size(-1)
    scores = columns.nan_to_num(0.0, math.inf, -math.inf)
    # Stable, so that equal scores keep the order of their tokens, whatever sorts them.
    ranked, tokens = scores.sort(dim=-1, descending=True, stable=True)
    _search[(len(columns) * triton.cdiv(length, PLACES),)](
        columns,
        limits,
        ranked,
        tokens,
        order,
        reach,
        length,
        length.bit_length(),
        SIZE=PLACES,
    )


@triton.jit
def _search(
    columns: tl.tensor,
    limits: tl.tensor,
    ranked: tl.tensor,
    tokens: tl.tensor,
    order: tl.tensor,
    reach: tl.tensor,
    length: tl.tensor,
    steps: tl.tensor,
    SIZE: tl.constexpr,
) -> None:
    """Find how many tokens each one joins, counted from the strongest of its own sign.

    The rounded product rises with the other score, so its votes are the first ones in that order.
    """
    tiles = tl.cdiv(length, SIZE)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    place = tl.program_id(0) % tiles * SIZE + tl.arange(0, SIZE)
    inside = place < length
    here = row * length + place
    ranked += row * length
    token = tl.load(tokens + here, mask=inside, other=0)
    score = tl.load(columns + row * length + token, mask=inside, other=0.0)
    limit = tl.load(limits + row)
    from_left = score >= 0
    low = tl.zeros((SIZE,), dtype=tl.int32)  # the first `low` join
    high = tl.zeros((SIZE,), dtype=tl.int32) + length  # from `high` on none does
    for _ in range(steps):
        middle = (low + high) // 2
        other = tl.where(from_left, middle, length - 1 - middle)
        # Nothing is left to search where NaN is read: it does not join.
        value = tl.load(ranked + other, mask=inside & (low < high), other=float("nan"))
        joins = score * value > limit
        low = tl.where(joins, middle + 1, low)
        high = tl.where(joins, high, middle)
    tl.store(reach + here, tl.where(from_left, low, -low), mask=inside)
    tl.store(order + here, token.to(tl.int32), mask=inside)
