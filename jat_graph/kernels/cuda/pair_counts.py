"""Σ_j A_j x over earlier or later tokens only: pairs are counted in registers, tile by tile."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from jat_graph.kernels.cuda.token_order import by_token

# Queries and tokens of a tile of pairs, and features of a slice, at most: with two warps the counts
# and both factors of the matrix product just fit the registers.
QUERIES, TOKENS, FEATURES, WARPS = 64, 32, 64, 2


def add_one_side(x: Tensor, order: Tensor, reach: Tensor, later: bool) -> Tensor:
    """Return y_i = Σ_j Σ_k 1[j joins (i, k)] x_k over k > i, or over k < i.

    Takes O(U · L²) time, and memory for each token's place and reach.

    Args:
        x: Features ``[G, L, D]``.
        order: Tokens by falling score with each key, ``[G, U, L]``.
        reach: How far the token at each place joins, ``[G, U, L]``.
        later: Over k > i.

    Returns:
        Sums ``[G, L, D]``.
    """
    graphs, num_keys, length = order.shape
    width = x.size(-1)
    result = torch.empty_like(x)
    places = by_token(order, torch.arange(length, dtype=order.dtype, device=order.device), -1)
    reaches = by_token(order, reach, 0)
    features = min(FEATURES, max(16, triton.next_power_of_2(width)))
    grid = graphs * triton.cdiv(length, QUERIES), triton.cdiv(width, features)
    with torch.cuda.device_of(x):
        _add_pairs[grid](
            x,
            places,
            reaches,
            result,
            num_keys,
            length,
            width,
            LATER=later,
            ROWS=QUERIES,
            COLUMNS=TOKENS,
            WIDTH=features,
            num_warps=WARPS,
        )
    return result


@triton.jit
def _add_pairs(
    x: tl.tensor,
    places: tl.tensor,
    reaches: tl.tensor,
    result: tl.tensor,
    num_keys: tl.tensor,
    length: tl.tensor,
    width: tl.tensor,
    LATER: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    tiles = tl.cdiv(length, ROWS)
    graph = (tl.program_id(0) // tiles).to(tl.int64)
    row = tl.program_id(0) % tiles * ROWS
    if not LATER:
        row = (tiles - 1) * ROWS - row  # the longest rows first
    i = row + tl.arange(0, ROWS)
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    x += graph * length * width
    places += graph * num_keys * length
    reaches += graph * num_keys * length + i
    total = tl.zeros((ROWS, WIDTH), dtype=x.dtype.element_ty)
    for column in range(row if LATER else 0, length if LATER else row + ROWS, COLUMNS):
        k = column + tl.arange(0, COLUMNS)
        counts = _count_pairs(places + k, reaches, num_keys, length, i, k, ROWS, COLUMNS)
        allowed = k[None, :] > i[:, None] if LATER else k[None, :] < i[:, None]
        counts = tl.where(allowed, counts, 0.0).to(x.dtype.element_ty)
        features = x + k[:, None].to(tl.int64) * width + d[None, :]
        rows = tl.load(features, mask=(k < length)[:, None] & (d < width)[None, :], other=0.0)
        total = tl.dot(counts, rows, total, input_precision="ieee", out_dtype=total.dtype)
    target = result + graph * length * width + i[:, None].to(tl.int64) * width + d[None, :]
    tl.store(target, total, mask=(i < length)[:, None] & (d < width)[None, :])


@triton.jit
def _count_pairs(
    places: tl.tensor,
    reaches: tl.tensor,
    num_keys: tl.tensor,
    length: tl.tensor,
    i: tl.tensor,
    k: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> tl.tensor:
    """Count the keys that join each pair of a tile."""
    counts = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for _ in range(num_keys):
        reach = tl.load(reaches, mask=i < length, other=0)
        place = tl.load(places, mask=k < length, other=-1).to(tl.float32)
        # The joined places are an interval: one comparison, exact in float32 for 2^22 tokens.
        radius = tl.abs(reach).to(tl.float32) * 0.5
        centre = tl.where(reach < 0, length - radius, radius) - 0.5
        joined = tl.abs(place[None, :] - centre[:, None]) < radius[:, None]
        counts += joined.to(tl.float32)
        reaches += length
        places += length
    return counts
