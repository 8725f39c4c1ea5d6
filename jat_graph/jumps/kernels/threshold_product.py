"""Multiply by a sum of threshold graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from jat_graph.core.compiling import ceil_div, choose, triton_kernel
from jat_graph.jumps.kernels.ranking import Ranking

if TYPE_CHECKING:
    import triton.language as tl


def sum_joined(x: Tensor, ranking: Ranking) -> Tensor:
    """Return, for each token, the sum of the rows of ``x`` over all keys and joined tokens.

    For one key the joined tokens are the first or last ones of an order, so that all sums are
    read off one running sum of rows, from the strongest end: O(U · L · D), nothing subtracted, no
    edge stored. The graphs are symmetric, so the backward pass is the forward pass.

    Args:
        x: Features ``[B, H, L, D]``, float32 or float64.
        ranking: Whom each key joins.

    Returns:
        y_i = Σ_j Σ_k 1[j joins (i, k)] x_k, the token itself included where it joins itself.

    Shapes:
        - **output:** ``[B, H, L, D]``

    Reference:
        Eq. 3 of the JAT paper times the number of voting keys; see :class:`Ranking`.
    """
    total: Tensor = _sum_joined(x, ranking.order, ranking.reach)
    return total


@torch.library.custom_op("jat_graph::sum_joined", mutates_args=())
def _sum_joined(x: Tensor, order: Tensor, reach: Tensor) -> Tensor:
    """Multiply; an opaque operator, so that torch.compile does not trace the loops."""
    flat = (tensor.flatten(0, 1).contiguous() for tensor in (x, order, reach))
    add = choose(x.device, add_joined_torch, add_joined_numba, add_joined_triton)
    return add(*flat).view(x.shape)


@_sum_joined.register_fake
def _(x: Tensor, order: Tensor, reach: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return _sum_joined(grad, *ctx.saved_tensors), None, None


_sum_joined.register_autograd(
    _backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[1:])
)


BLOCK = 2**22  # elements of the running sums that are held at a time


def add_joined_torch(x: Tensor, order: Tensor, reach: Tensor) -> Tensor:
    """Return y_i = Σ_j Σ_k 1[j joins (i, k)] x_k by running sums over blocks of keys: [G, L, D]."""
    graphs, num_keys, length = order.shape
    width, total = x.size(-1), torch.zeros_like(x)
    step = max(1, BLOCK // max(1, x.numel()))
    for start in range(0, num_keys, step):
        reaches = reach[:, start : start + step]
        # Where no token is, is beyond everybody's reach.
        tokens = order[:, start : start + step].clamp(min=0).long()
        index = tokens.unsqueeze(-1).expand(-1, -1, -1, width)
        ranked = x.unsqueeze(1).expand(-1, index.size(1), -1, -1).gather(2, index)
        zero = ranked.new_zeros(graphs, index.size(1), 1, width)
        # Each side is summed from its strongest end, so that nothing is ever subtracted.
        running = torch.cat([zero, ranked.cumsum(2), ranked.flip(2).cumsum(2)], dim=2)
        end = torch.where(reaches < 0, length - reaches, reaches).long()  # one zero for both sides
        sums = running.gather(2, end.unsqueeze(-1).expand(-1, -1, -1, width))
        sums.masked_fill_((reaches == 0).unsqueeze(-1), 0.0)
        total += torch.zeros_like(ranked).scatter_add_(2, index, sums).sum(1)
    return total


def add_joined_numba(x: Tensor, order: Tensor, reach: Tensor) -> Tensor:
    """Return the same by numba, from a file of its own."""
    from jat_graph.jumps.kernels import threshold_product_cpu

    return threshold_product_cpu.add_joined_numba(x, order, reach)


# Numbers in the running sums that are held at a time, if one key allows it: 64 MiB in float32.
HELD = 2**24
# Places that one program sums up one after the other, and how many of them at a time.
SEGMENT, CHUNK = 1024, 64
# Tokens that one program reads sums for, and features of a slice, at most.
TOKENS, FEATURES = 32, 64
INDICES = 1024  # that a program moves


def add_joined_triton(x: Tensor, order: Tensor, reach: Tensor) -> Tensor:
    """Return the same by running sums of rows in segments.

    Each end of an order is summed from its strongest token, so that nothing is ever subtracted; and
    in segments, so that one long order keeps the whole device busy.
    """
    graphs, num_keys, length = order.shape
    width, orders, segments = x.size(-1), graphs * num_keys, ceil_div(length, SEGMENT)
    features = min(FEATURES, 1 << (width - 1).bit_length())
    slices = ceil_div(width, features)
    sizes = {"length": length, "width": width, "SPAN": SEGMENT, "WIDTH": features}
    # Places from either end that somebody reaches: further ones need no sum.
    extents = torch.stack((reach.amax(-1), -reach.amin(-1)), dim=-1).clamp_(min=0)
    step = min(orders, max(1, HELD // (2 * x[0].numel())))
    sums = x.new_empty(step, 2, length, width)
    ends = x.new_empty(2, step, 2, segments, width)  # of each segment, and of all before it
    reaches, result = torch.zeros_like(order), torch.zeros_like(x)
    with torch.cuda.device_of(x):
        move = _move[(orders * ceil_div(length, INDICES),)]
        move(order, reach, reaches, length, SIZE=INDICES)
        for first in range(0, orders, step):
            last = min(first + step, orders)
            sides = 2 * (last - first)
            given = x, order, extents, sums, ends[0], first, num_keys
            _sum_segments[(sides * segments, slices)](*given, **sizes, ROWS=CHUNK)
            if segments > 1:
                _sum_ends[(sides, slices)](extents, *ends, first, **sizes, ROWS=CHUNK)
            graphs = (last - 1) // num_keys + 1 - first // num_keys
            summed = sums, ends[1], reaches, result, first, last, num_keys
            grid = (graphs * ceil_div(length, TOKENS), slices)
            _read_sums[grid](*summed, **sizes, ROWS=TOKENS)
    return result


@triton_kernel("first")
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
        index = chunk + tl.arange(0, ROWS)
        inside = (index < stop)[:, None] & (d < width)[None, :]
        here = tl.where(side % 2 == 0, index, length - 1 - index)
        token = tl.load(order + here, mask=index < stop, other=-1)[:, None]
        rows = tl.load(x + token.to(tl.int64) * width, mask=inside & (token >= 0), other=0.0)
        total = running[None, :] + tl.cumsum(rows, 0)
        tl.store(sums + index[:, None].to(tl.int64) * width, total, mask=inside)
        running += tl.sum(rows, 0)
    if start < stop:
        tl.store(ends + tl.program_id(0).to(tl.int64) * width + d, running, mask=d < width)


@triton_kernel("first")
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


@triton_kernel("first", "last")
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
        index = tl.abs(reach) - 1
        from_side = side + (reach < 0)
        row = (from_side * length + index)[:, None]
        inside = (d < width)[None, :] & (index >= 0)[:, None]
        total += tl.load(sums + row * width + d[None, :], mask=inside, other=0.0)
        segment = (from_side * segments + index // SPAN)[:, None]
        inside = (d < width)[None, :] & (index >= SPAN)[:, None]
        total += tl.load(starts + segment * width + d[None, :], mask=inside, other=0.0)
        side += 2
        reaches += length
    tl.store(target, total, mask=written)


@triton_kernel()
def _move(
    order: tl.tensor, values: tl.tensor, result: tl.tensor, length: tl.tensor, SIZE: tl.constexpr
) -> None:
    """Write down the value at each token's index; nothing for a token that the order lacks."""
    tiles = tl.cdiv(length, SIZE)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    index = tl.program_id(0) % tiles * SIZE + tl.arange(0, SIZE)
    token = tl.load(order + row * length + index, mask=index < length, other=-1)
    value = tl.load(values + row * length + index, mask=index < length, other=0)
    tl.store(result + row * length + token, value, mask=token >= 0)
