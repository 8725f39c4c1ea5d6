"""Which keys each block of queries needs: what a pattern means to attention without L×L work."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from jat_graph.patterns.base import Pattern

# Queries in a block; chosen by measurement on windows of 128 to 512.
BLOCK = 128


@dataclass(frozen=True)
class BlockGroup:
    """Blocks of queries of one height that need equally many keys.

    Args:
        queries: Positions ``[n, height]``.
        keys: Positions ``[n, width]``.
        mask: Which of them attend to which, ``[n, 1, height, width]``, with n = 1 where all blocks
            agree; None if all do.
    """

    queries: Tensor
    keys: Tensor
    mask: Tensor | None

    def to(self, device: torch.device) -> BlockGroup:
        """Return the group on a device."""
        mask = None if self.mask is None else self.mask.to(device)
        return BlockGroup(self.queries.to(device), self.keys.to(device), mask)


@lru_cache(maxsize=64)
def shared_layout(pattern: Pattern, length: int, device: torch.device) -> tuple[BlockGroup, ...]:
    """Return the layout of a pattern that is the same for all sequences, and keep it.

    Args:
        pattern: Of one head.
        length: Number of tokens.
        device: Where to put it.

    Returns:
        Groups that hold each query with some key once.
    """
    return tuple(group.to(device) for group in layout(pattern, length))


def layout(pattern: Pattern, length: int, sequence: int = 0) -> list[BlockGroup]:
    """Return which keys each block of queries needs.

    Args:
        pattern: Of one head.
        length: Number of tokens.
        sequence: Place in the batch. (default: 0)

    Returns:
        Groups that hold each query with some key once.
    """
    first, last = query_blocks(pattern, length)
    ranges = pattern.key_ranges(first, last, length)
    starts = torch.stack([start.expand_as(first) for start, _ in ranges], -1).clamp(min=0)
    stops = torch.stack([stop.expand_as(first) for _, stop in ranges], -1).clamp(max=length)
    groups: dict[tuple[int, int], list[tuple[int, list[tuple[int, int]]]]] = defaultdict(list)
    for query, end, lows, highs in zip(
        first.tolist(), last.tolist(), starts.tolist(), stops.tolist(), strict=True
    ):
        merged = _merge(list(zip(lows, highs, strict=True)))
        width = sum(stop - start for start, stop in merged)
        if width:
            groups[end - query + 1, width].append((query, merged))
    return [_group(pattern, height, blocks, sequence) for (height, _), blocks in groups.items()]


def query_blocks(pattern: Pattern, length: int) -> tuple[Tensor, Tensor]:
    """Cut a sequence into blocks, at the pattern's breaks and along its grain.

    Args:
        pattern: Of one head.
        length: Number of tokens.

    Returns:
        The first and the last query of each block, ``[n]`` each.
    """
    grain = pattern.grain
    block = grain * max(1, BLOCK // grain) if grain <= BLOCK else BLOCK
    cuts = torch.tensor(sorted({*range(0, length, block), *pattern.breaks(length), length}))
    return cuts[:-1], cuts[1:] - 1


def count_edges(pattern: Pattern, length: int) -> int:
    """Count the allowed pairs of a pattern of one head.

    Args:
        pattern: Of one head.
        length: Number of tokens.

    Returns:
        The exact number.
    """
    total = 0
    for group in layout(pattern, length):
        blocks, height = group.queries.shape
        if group.mask is None:
            total += blocks * height * group.keys.size(1)
        else:
            total += int(group.mask.sum()) * (blocks // group.mask.size(0))
    return total


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same positions as ranges in order, each position once."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        start = max(start, merged[-1][1]) if merged else start
        if start < stop:
            merged.append((start, stop))
    return merged


def _group(
    pattern: Pattern, height: int, blocks: list[tuple[int, list[tuple[int, int]]]], sequence: int
) -> BlockGroup:
    queries = torch.tensor([query for query, _ in blocks]).unsqueeze(-1) + torch.arange(height)
    keys = torch.stack(
        [torch.cat([torch.arange(*part) for part in ranges]) for _, ranges in blocks]
    )
    zero = torch.zeros((), dtype=torch.long)
    mask = pattern.mask_mod(zero + sequence, zero, queries.unsqueeze(-1), keys.unsqueeze(-2))
    mask = mask.expand(len(blocks), height, keys.size(1)).unsqueeze(1)
    if bool(mask.all()):
        return BlockGroup(queries, keys, None)
    return BlockGroup(queries, keys, mask[:1] if bool((mask == mask[:1]).all()) else mask)
