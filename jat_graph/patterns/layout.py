"""Which keys each block of queries needs: what a pattern means to attention, without L×L work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.patterns.base import KeyRange, Pattern

# Queries in a block; the fastest of 64 to 512 for windows of 128 to 512 on a CPU.
BLOCK = 128

# Queries in a block of a pattern that is made of smaller ones, at least.
LEAST = 32

# Pairs looked at in one go, and the largest mask that is kept.
PAIRS, KEPT_PAIRS = 2**22, 2**20


class BlockGroup(NamedTuple):
    """Blocks of queries of one height that need equally many keys.

    Args:
        queries: Positions ``[n, height]``, in order.
        keys: Positions ``[n, width]``, in order.
        mask: Which attend to which, ``[height, width]``, where all blocks agree; else None.
        rule: What says it where they do not, or where the mask is too large to keep; else None.
            With neither, every query attends to every key.
    """

    queries: Tensor
    keys: Tensor
    mask: Tensor | None = None
    rule: Pattern | None = None

    def masks(
        self,
        blocks: Tensor,  # Which, [m]
    ) -> Tensor | None:  # [m, 1, height, width], [1, 1, height, width]
        """Return the masks of some blocks."""
        if self.rule is None:
            return None if self.mask is None else self.mask[None, None]
        return pairs_of(self.rule, self.queries[blocks], self.keys[blocks]).unsqueeze(1)

    def to(self, device: torch.device) -> BlockGroup:
        """Return the group on a device."""
        mask = None if self.mask is None else self.mask.to(device)
        return BlockGroup(self.queries.to(device), self.keys.to(device), mask, self.rule)


@lru_cache(maxsize=64)
def kept_layout(pattern: Pattern, length: int, device: torch.device) -> tuple[BlockGroup, ...]:
    """Return the layout of a pattern, made once."""
    return tuple(group.to(device) for group in layout(pattern, length))


def layout(pattern: Pattern, length: int) -> list[BlockGroup]:
    """Return which keys each block of queries needs."""
    sizes: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
    with torch.device("cpu"):  # wherever new tensors go by default
        for queries, keys in _blocks(pattern, length):
            sizes[len(queries), len(keys)].append((queries, keys))
        return [
            group
            for blocks in sizes.values()
            for group in _groups(pattern, *(torch.stack(p) for p in zip(*blocks, strict=True)))
        ]


def pairs_of(
    pattern: Pattern,
    queries: Tensor,  # Positions [n, height]
    keys: Tensor,  # Positions [n, width]
) -> Tensor:  # [n, height, width]
    """Return which queries of blocks attend to which keys."""
    none = torch.zeros((), dtype=torch.long, device=queries.device)
    mask = pattern.mask_mod(none, none, queries.unsqueeze(-1), keys.unsqueeze(-2))
    return mask.expand(*queries.shape, keys.size(-1))


def count_edges(pattern: Pattern, length: int) -> int:
    """Count the allowed pairs of a pattern."""
    total = 0
    for group in layout(pattern, length):
        if group.rule is not None:
            total += sum(
                int(pairs.sum()) for pairs in _pairs(group.rule, group.queries, group.keys)
            )
        elif group.mask is not None:
            total += group.queries.size(0) * int(group.mask.sum())
        else:
            total += group.queries.numel() * group.keys.size(1)
    return total


def _blocks(pattern: Pattern, length: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each block's queries and keys."""
    blocks, step = _query_blocks(pattern, length), max(1, pattern.spacing)
    first, last = torch.tensor([(block[0], block[-1]) for block in blocks]).unbind(-1)
    runs = pattern.key_ranges(first, last, step, length)
    for place, block in enumerate(blocks):
        keys = _positions(runs, place, length)
        if len(keys):
            yield torch.arange(block.start, block.stop, step), keys


def _query_blocks(pattern: Pattern, length: int) -> list[range]:
    """Cut the queries at the pattern's breaks, along its grain, and into lines of its spacing."""
    step, grain = max(1, pattern.spacing), pattern.grain
    cuts = {0, length, *(place for place in pattern.breaks(length) if place < length)}
    if step == 1:
        cuts.update(range(0, length, BLOCK if grain == 1 else grain * -(-LEAST // grain)))
    return [
        line[start : start + BLOCK]
        for low, high in pairwise(sorted(cuts))
        for line in (range(place, high, step) for place in range(low, min(low + step, high)))
        for start in range(0, len(line), BLOCK)
    ]


def _positions(runs: list[KeyRange], place: int, length: int) -> Tensor:
    """Return the keys in the sequence that one block's runs hold, in order."""
    keys: set[int] = set()
    for run in runs:
        start, stop = int(run.start[place]), min(int(run.stop[place]), length)
        keys.update(range(start if start >= 0 else start % run.step, stop, run.step))
    return torch.tensor(sorted(keys), dtype=torch.long)


def _groups(pattern: Pattern, queries: Tensor, keys: Tensor) -> Iterator[BlockGroup]:
    """Yield the blocks whose mask is the most common one, which they share, and the others."""
    masks = [
        hash(mask.numpy().tobytes()) for part in _pairs(pattern, queries, keys) for mask in part
    ]
    common, count = Counter(masks).most_common(1)[0]
    shares = torch.tensor([mask == common for mask in masks])
    if count < min(2, len(masks)):
        shares[:] = False
    if bool(shares.any()):
        yield _shared_group(pattern, queries[shares], keys[shares])
    if not bool(shares.all()):
        yield BlockGroup(queries[~shares], keys[~shares], rule=pattern)


def _shared_group(pattern: Pattern, queries: Tensor, keys: Tensor) -> BlockGroup:
    mask = pairs_of(pattern, queries[:1], keys[:1])[0]
    if bool(mask.all()):
        return BlockGroup(queries, keys)
    if mask.numel() > KEPT_PAIRS:
        return BlockGroup(queries, keys, rule=pattern)
    return BlockGroup(queries, keys, mask=mask.clone())


def _pairs(pattern: Pattern, queries: Tensor, keys: Tensor) -> Iterator[Tensor]:
    """Yield the pairs of some blocks at a time, ``[m, height, width]``."""
    some = max(1, PAIRS // (queries.size(1) * keys.size(1)))
    for start in range(0, len(queries), some):
        chosen = slice(start, start + some)
        yield pairs_of(pattern, queries[chosen], keys[chosen]).contiguous()


@torch.compiler.disable  # type: ignore[untyped-decorator]
def keys_read(pattern: Pattern, length: int) -> int:
    """Count the pairs that blocks look at, those that are masked too."""
    groups = kept_layout(pattern, length, torch.device("cpu"))
    return sum(group.queries.numel() * group.keys.size(1) for group in groups)
