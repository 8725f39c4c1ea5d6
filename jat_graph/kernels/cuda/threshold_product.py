"""Multiply by a sum of threshold graphs in Triton: running sums of rows, read where they end."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from jat_graph.kernels.cuda.token_order import by_token

# Numbers in the running sums that are held at a time, if one key allows it: 64 MiB in float32.
HELD = 2**24
# Places that one program sums up one after the other, and how many of them at a time.
SEGMENT, CHUNK = 1024, 64
# Tokens that one program reads sums for, and features of a slice, at most.
TOKENS, FEATURES = 32, 64


def add_joined(
    x: Tensor,  # Features [G, L, D]
    order: Tensor,  # Tokens by falling score with each key, [G, U, L]
    reach: Tensor,  # How far the token at each place joins, [G, U, L]
) -> Tensor:  # [G, L, D]
    """Return y_i = Σ_j Σ_k 1[j joins (i, k)] x_k.

    Each end of an order is summed from its strongest token, so that nothing is ever subtracted; and
    in segments, so that one long order keeps the whole device busy.

    Reference:
        Mahadev & Peled, *Threshold Graphs and Related Topics*, 1995.
    """
    graphs, num_keys, length = order.shape
    result = torch.zeros_like(x)
    reaches = by_token(order, reach)
    # Places from either end that somebody reaches: further ones need no sum.
    extents = torch.stack((reach.amax(-1), -reach.amin(-1)), dim=-1).clamp_(min=0)
    orders = graphs * num_keys
    step = min(orders, max(1, HELD // (2 * x[0].numel())))
    sums = x.new_empty(step, 2, length, x.size(-1))
    ends = x.new_empty(2, step, 2, triton.cdiv(length, SEGMENT), x.size(-1))
    with torch.cuda.device_of(x):
        for first in range(0, orders, step):
            last = min(first + step, orders)
            _add_orders(x, order, extents, reaches, sums, ends, result, first, last)
    return result


def _add_orders(
    x: Tensor,  # [G, L, D]
    order: Tensor,  # [G, U, L]
    extents: Tensor,  # [G, U, 2]
    reaches: Tensor,  # [G, U, L]
    sums: Tensor,  # [u, 2, L, D], written
    ends: Tensor,  # [2, u, 2, S, D], written: of each segment, and of all before it
    result: Tensor,  # [G, L, D], added to
    first: int,
    last: int,
) -> None:
    """Add the joined rows of some of the orders, counted over all graphs."""
    num_keys, length = order.shape[1:]
    segments, width = ends.shape[3:]
    features = min(FEATURES, triton.next_power_of_2(width))
    slices = triton.cdiv(width, features)
    sizes = {"length": length, "width": width, "SPAN": SEGMENT, "ROWS": CHUNK, "WIDTH": features}
    sides = 2 * (last - first)
    _sum_segments[(sides * segments, slices)](
        x, order, extents, sums, ends[0], first, num_keys, **sizes
    )
    if segments > 1:
        _sum_ends[(sides, slices)](extents, ends[0], ends[1], first, **sizes)
    sizes["ROWS"] = TOKENS
    graph = first // num_keys
    graphs = (last - 1) // num_keys + 1 - graph
    _read_sums[(graphs * triton.cdiv(length, TOKENS), slices)](
        sums, ends[1], reaches, result, first, last, num_keys, **sizes
    )


@triton.jit(do_not_specialize=["first"])
def _sum_segments(
    x: tl.tensor,
    order: tl.tensor,
    extents: tl.tensor,
    sums: tl.tensor,
    ends: tl.tensor,
    first: tl.tensor,
    num_keys: tl.tensor,
    length: tl.tensor,
    width: tl.tensor,
    SPAN: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Write the running sums of a segment of one side of an order, and where they end."""
    segments = tl.cdiv(length, SPAN)
    side = (tl.program_id(0) // segments).to(tl.int64)  # of all sides that are held
    start = tl.program_id(0) % segments * SPAN
    stop = tl.minimum(tl.load(extents + 2 * first + side), start + SPAN)
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    row = first + side // 2
    order += row * length
    x += row // num_keys * length * width + d[None, :]
    sums += side * length * width + d[None, :]
    running = tl.zeros((WIDTH,), dtype=x.dtype.element_ty)
    for chunk in range(start, stop, ROWS):
        place = chunk + tl.arange(0, ROWS)
        inside = (place < stop)[:, None] & (d < width)[None, :]
        here = tl.where(side % 2 == 0, place, length - 1 - place)
        token = tl.load(order + here, mask=place < stop, other=-1)[:, None]
        rows = tl.load(x + token.to(tl.int64) * width, mask=inside & (token >= 0), other=0.0)
        total = running[None, :] + tl.cumsum(rows, 0)
        tl.store(sums + place[:, None].to(tl.int64) * width, total, mask=inside)
        running += tl.sum(rows, 0)
    if start < stop:
        tl.store(ends + tl.program_id(0).to(tl.int64) * width + d, running, mask=d < width)


@triton.jit(do_not_specialize=["first"])
def _sum_ends(
    extents: tl.tensor,
    ends: tl.tensor,
    starts: tl.tensor,
    first: tl.tensor,
    length: tl.tensor,
    width: tl.tensor,
    SPAN: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Write what all segments of one side before each one add up to; the first has none."""
    side = tl.program_id(0).to(tl.int64)
    last = tl.cdiv(tl.load(extents + 2 * first + side), SPAN) - 1
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    offset = side * tl.cdiv(length, SPAN) * width + d[None, :]
    running = tl.zeros((WIDTH,), dtype=ends.dtype.element_ty)
    for chunk in range(0, last, ROWS):
        segment = (chunk + tl.arange(0, ROWS))[:, None]
        inside = (segment < last) & (d < width)[None, :]
        rows = tl.load(ends + offset + segment * width, mask=inside, other=0.0)
        total = running[None, :] + tl.cumsum(rows, 0)
        tl.store(starts + offset + (segment + 1) * width, total, mask=inside)
        running += tl.sum(rows, 0)


@triton.jit(do_not_specialize=["first", "last"])
def _read_sums(
    sums: tl.tensor,
    starts: tl.tensor,
    reaches: tl.tensor,
    result: tl.tensor,
    first: tl.tensor,
    last: tl.tensor,
    num_keys: tl.tensor,
    length: tl.tensor,
    width: tl.tensor,
    SPAN: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Add to each token of a tile the sums up to its reach, one order after the other.

    Goes on from what earlier calls have added, so that how many orders are held changes no bit.
    """
    tiles = tl.cdiv(length, ROWS)
    graph = first // num_keys + tl.program_id(0) // tiles
    i = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    start = tl.maximum(first, graph * num_keys)
    segments = tl.cdiv(length, SPAN)
    side = (start - first).to(tl.int64) * 2
    reaches += start.to(tl.int64) * length + i
    target = result + graph.to(tl.int64) * length * width
    target += i[:, None].to(tl.int64) * width + d[None, :]
    written = (i < length)[:, None] & (d < width)[None, :]
    total = tl.load(target, mask=written, other=0.0)
    for _ in range(start, tl.minimum(last, (graph + 1) * num_keys)):
        reach = tl.load(reaches, mask=i < length, other=0)
        place = tl.abs(reach) - 1
        from_side = side + (reach < 0)
        row = (from_side * length + place)[:, None]
        inside = (d < width)[None, :] & (place >= 0)[:, None]
        total += tl.load(sums + row * width + d[None, :], mask=inside, other=0.0)
        segment = (from_side * segments + place // SPAN)[:, None]
        inside = (d < width)[None, :] & (place >= SPAN)[:, None]
        total += tl.load(starts + segment * width + d[None, :], mask=inside, other=0.0)
        side += 2
        reaches += length
    tl.store(target, total, mask=written)
