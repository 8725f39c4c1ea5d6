"""The largest product of each key with a query in Triton: tiles of products."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Queries and keys of a tile of products, and features that are multiplied at a time: the fewest
# registers without which the matrix product spills.
TILE, FEATURES = 64, 32


def peaks(
    query: Tensor,  # Queries [G, N, D]
    key: Tensor,  # Keys [G, L, D], of the same dtype
) -> Tensor:  # [G, L]
    """Return the largest product of each key with a query.

    Reference:
        Eq. 8 of the JAT paper.
    """
    graphs, length, width = key.shape
    peak = key.new_empty(graphs, length)
    with torch.cuda.device_of(key):
        _stream_queries[(graphs * triton.cdiv(length, TILE),)](
            query,
            key,
            peak,
            query.size(1),
            length,
            width,
            SIZE=TILE,
            DEPTH=FEATURES,
        )
    return peak


@triton.jit
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
