"""The largest score of every key, of which Eq. 8 takes the mean away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from jat_graph.core.compiling import ceil_div, choose, triton_kernel

if TYPE_CHECKING:
    import triton.language as tl


def query_peaks(query: Tensor, key: Tensor, seen: Tensor | None) -> Tensor:
    """Return the largest product of each key with a query, streamed.

    No L×L tensor is stored, and no gradient flows through the result.

    Args:
        query: Queries ``[B, H, N, D]``.
        key: Keys ``[B, H, L, D]``, of the same dtype, float32 or float64.
        seen: Which queries count, ``[B|1, H|1, N]`` bool; None if all do. Where none is seen, the
            result is finite and means nothing.

    Returns:
        Maxima over the seen queries, ``[B, H, L]``.

    Reference:
        Eq. 8 of the JAT paper.
    """
    if seen is not None:
        # A seen query once more changes no maximum, and the loop needs no mask.
        first = seen.byte().argmax(-1)[..., None, None].expand(*query.shape[:2], 1, query.size(3))
        query = torch.where(seen.unsqueeze(-1), query, query.gather(2, first))
    peak: Tensor = _query_peaks(query.detach(), key.detach())
    return peak


@torch.library.custom_op("jat_graph::query_peaks", mutates_args=())
def _query_peaks(query: Tensor, key: Tensor) -> Tensor:
    """Stream; an opaque operator, so that torch.compile does not trace the loops."""
    flat = (tensor.flatten(0, 1).contiguous() for tensor in (query, key))
    peak = choose(query.device, peaks_torch, peaks_torch, peaks_triton)(*flat)
    return peak.view(key.shape[:3])


@_query_peaks.register_fake
def _(query: Tensor, key: Tensor) -> Tensor:
    return key.new_empty(key.shape[:3])


# Products that are held at a time: they fit the cache between the matrix product and its maximum.
BLOCK = 2**21


def peaks_torch(query: Tensor, key: Tensor) -> Tensor:
    """Return each key's largest product by blocks of queries: [G, N, D], [G, L, D] -> [G, L].

    On the CPU nothing is faster: the maximum takes a tenth of the time of the matrix product.
    """
    peak = key.new_full(key.shape[:2], -torch.inf)
    step = max(1, BLOCK // max(1, peak.numel()))
    for start in range(0, query.size(1), step):
        products = key @ query[:, start : start + step].mT  # [G, L, n]
        torch.maximum(peak, products.amax(-1), out=peak)
    return peak


# Queries and keys of a tile of products, and features that are multiplied at a time: the fewest
# registers without which the matrix product spills.
TILE, FEATURES = 64, 32


def peaks_triton(query: Tensor, key: Tensor) -> Tensor:
    """Return the same by tiles of products."""
    graphs, length, width = key.shape
    peak = key.new_empty(graphs, length)
    sizes = query.size(1), length, width
    with torch.cuda.device_of(key):
        grid = (graphs * ceil_div(length, TILE),)
        _stream_queries[grid](query, key, peak, *sizes, SIZE=TILE, DEPTH=FEATURES, num_warps=8)
    return peak


@triton_kernel()
def _stream_queries(
    query: tl.tensor,
    key: tl.tensor,
    peak: tl.tensor,
    num_queries: tl.tensor,
    length: tl.tensor,
    width: tl.tensor,
    SIZE: tl.constexpr,
    DEPTH: tl.constexpr,
) -> None:
    tiles = tl.cdiv(length, SIZE)
    graph = (tl.program_id(0) // tiles).to(tl.int64)
    k = tl.program_id(0) % tiles * SIZE + tl.arange(0, SIZE)
    dtype = peak.dtype.element_ty
    query += graph * num_queries * width
    key += graph * length * width + k[None, :].to(tl.int64) * width
    best = tl.full((SIZE,), float("-inf"), dtype=dtype)
    for start in range(0, num_queries, SIZE):
        n = start + tl.arange(0, SIZE)
        products = tl.zeros((SIZE, SIZE), dtype=dtype)
        for first in range(0, width, DEPTH):
            d = first + tl.arange(0, DEPTH)
            rows = query + n[:, None].to(tl.int64) * width + d[None, :]
            left = tl.load(rows, mask=(n < num_queries)[:, None] & (d < width)[None, :], other=0.0)
            mask = (d < width)[:, None] & (k < length)[None, :]
            right = tl.load(key + d[:, None], mask=mask, other=0.0)
            products = tl.dot(left, right, products, input_precision="ieee", out_dtype=dtype)
        # A row beyond the last one is no query.
        products = tl.where((n < num_queries)[:, None], products, float("-inf"))
        best = tl.maximum(best, tl.max(products, 0))
    tl.store(peak + graph * length + k, best, mask=k < length)
