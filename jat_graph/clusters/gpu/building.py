"""How trees are built on GPUs: clusters of keys, and the means of nodes."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from jat_graph.clusters.gpu import averaging, halving

BLOCK = 1024  # keys that a program halves at most
FEATURES = 4  # that it loads at a time
LEVELS = 4  # of which the means are written at most


def halves(blocks: Tensor, nodes: int) -> bool:
    """Tell whether the kernel makes so many clusters of each block."""
    children = blocks.size(2)
    in_two = children & (children - 1) == 0
    return nodes > 1 and in_two and children <= BLOCK and blocks.dtype != torch.float64


def halve(blocks: Tensor, nodes: int, turns: tuple[int, int]) -> Tensor:  # [Hkv, blocks, n, D]
    """Return the children of blocks, int32 [Hkv, blocks, n], those of a node in a row."""
    heads, number, children, width = blocks.shape
    order = torch.empty(blocks.shape[:3], dtype=torch.int32, device=blocks.device)
    # Along which each part is halved.
    ways = blocks.new_empty(heads * number, nodes // 2, width, dtype=torch.float32)
    if blocks.stride()[1:] != (children * width, width, 1):
        blocks = blocks.contiguous()
    with torch.cuda.device_of(blocks):
        halving.halve[(heads * number,)](
            *(blocks, blocks.stride(0), order, ways, number),
            CHILDREN=children,
            LEVELS=nodes.bit_length() - 1,
            WIDTH=width,
            D=FEATURES,
            VARY=turns[0],
            TURNS=sum(turns) + 1,
            num_warps=16,
        )
    return order


def average(
    rows: Tensor, key: Tensor, value: Tensor, size: int, counts: list[int]
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return the means of nodes over rows, [Hkv, n], of keys and values, [Hkv, n, D].

    Counts are of the nodes of each level, four of which make one of the next.
    """
    heads, number = rows.shape
    spreads = [key.new_empty(heads, count, dtype=torch.float32) for count in counts]
    grid = triton.cdiv(counts[0], averaging.CLUSTERS.value), heads
    tables = [x if x.stride()[1:] == (x.size(-1), 1) else x.contiguous() for x in (key, value)]
    means = [[x.new_empty(heads, count, x.size(-1)) for count in counts] for x in tables]
    every = (counts + [0] * LEVELS)[:LEVELS]
    for x, own in zip(tables, means, strict=True) if counts[0] else ():
        given = [(part + part[:1] * LEVELS)[:LEVELS] for part in (own, spreads)]
        with torch.cuda.device_of(x):
            averaging.average[grid](
                *(rows.contiguous(), x, x.stride(0), *given[0], *given[1], number, *every),
                SIZE=size,
                MEMBERS=triton.next_power_of_2(size),
                LEVELS=len(counts),
                WIDTH=x.size(-1),
                D=triton.next_power_of_2(x.size(-1)),
                KEYS=x is tables[0],
                num_warps=8,
            )
    return [*zip(*means, spreads, strict=True)]
