"""Which keys each block of queries needs: what a pattern means to attention, without L×L work."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.jumps.patterns.base import PAIRS, Pattern, key_blocks, pairs_of

KEPT_PAIRS = 2**20  # of the largest mask that is kept


class BlockGroup(NamedTuple):
    """Blocks of queries of one height that need equally many keys."""

    # Where all blocks agree, a mask says which attend to which, else a rule, and where the mask is
    # too large to keep. With neither, every query attends to every key.

    queries: Tensor  # positions in order, [n, height]
    keys: Tensor  # positions in order, [n, width]
    mask: Tensor | None = None  # [height, width]
    rule: Pattern | None = None

    def masks(self, blocks: Tensor) -> Tensor | None:  # [m] -> [m|1, 1, height, width]
        """Return the masks of some blocks; None if every query attends to every key."""
        if self.rule is None:
            return None if self.mask is None else self.mask[None, None]
        return pairs_of(self.rule, self.queries[blocks], self.keys[blocks]).unsqueeze(1)

    def to(self, device: torch.device) -> BlockGroup:
        mask = None if self.mask is None else self.mask.to(device)
        return BlockGroup(self.queries.to(device), self.keys.to(device), mask, self.rule)


@lru_cache(maxsize=64)
def kept_layout(pattern: Pattern, length: int, device: torch.device) -> tuple[BlockGroup, ...]:
    """Return the layout of a pattern on a device, made once."""
    return tuple(group.to(device) for group in layout(pattern, length))


def layout(pattern: Pattern, length: int) -> list[BlockGroup]:
    """Return which keys each block of queries needs, in a sequence without padding."""
    sizes: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
    with torch.device("cpu"):  # wherever new tensors go by default
        for queries, keys in key_blocks(pattern, length):
            sizes[len(queries), len(keys)].append((queries, keys))
        return [
            group
            for blocks in sizes.values()
            for group in _groups(pattern, *(torch.stack(p) for p in zip(*blocks, strict=True)))
        ]


def _groups(pattern: Pattern, queries: Tensor, keys: Tensor) -> Iterator[BlockGroup]:
    """Yield the blocks whose mask is the most common one, which they share, and the others."""
    some = max(1, PAIRS // (queries.size(1) * keys.size(1)))
    masks = [
        hash(mask.numpy().tobytes())
        for part in zip(torch.split(queries, some), torch.split(keys, some), strict=True)
        for mask in pairs_of(pattern, *part).contiguous()
    ]
    common, count = Counter(masks).most_common(1)[0]
    shares = torch.tensor([mask == common for mask in masks])
    if count < min(2, len(masks)):
        shares[:] = False
    if bool(shares.any()):
        alike = queries[shares], keys[shares]
        mask = pairs_of(pattern, alike[0][:1], alike[1][:1])[0]
        if bool(mask.all()):
            yield BlockGroup(*alike)
        elif mask.numel() > KEPT_PAIRS:
            yield BlockGroup(*alike, rule=pattern)
        else:
            yield BlockGroup(*alike, mask=mask.clone())
    if not bool(shares.all()):
        yield BlockGroup(queries[~shares], keys[~shares], rule=pattern)


class Piece(NamedTuple):
    """Some blocks of queries and their keys, as numbers of rows."""

    queries: Tensor  # [m, height]
    keys: Tensor  # [m, width]
    mask: Tensor | None  # which attend to which, [m|1, 1, height, width]; None if all do


class BatchGroup(NamedTuple):
    """Blocks of one layout, and where the sequences that have it are."""

    group: BlockGroup
    rows: Tensor  # number of the row of each token, [m, L]

    def pieces(self, most: int) -> Iterator[Piece]:
        """Yield the blocks of all sequences, some at a time."""
        blocks, width = self.group.keys.shape
        total, some = blocks * self.rows.size(0), max(1, most // width)
        for start in range(0, total, some):
            index = torch.arange(start, min(start + some, total), device=self.rows.device)
            own, block = (index // blocks).unsqueeze(-1), index % blocks
            queries = self.rows[own, self.group.queries[block]]
            keys = self.rows[own, self.group.keys[block]]
            yield Piece(queries, keys, self.group.masks(block))


def batch_groups(
    pattern: Pattern,
    valid: Tensor | None,  # tokens that are not padding, [B|1, L]; None if all are
    batch: int,
    length: int,
    device: torch.device,
) -> list[BatchGroup]:
    """Return which keys each block of queries needs in a batch; padding is left out."""
    rows = torch.arange(batch * length, device=device).view(batch, length)
    if valid is None:
        sizes = {length: list(range(batch))}
    else:
        order = (~valid).to(torch.uint8).argsort(dim=-1, stable=True)  # padding last
        rows = rows.gather(1, order.expand(batch, length))
        sizes = defaultdict(list)
        for index, count in enumerate(valid.expand(batch, -1).sum(-1).tolist()):
            sizes[count].append(index)
    found: list[BatchGroup] = []
    for count, indices in sizes.items():
        own = rows[:, :count] if len(indices) == batch else rows[indices, :count]
        if count and not pattern.num_sequences:
            found += [BatchGroup(group, own) for group in kept_layout(pattern, count, device)]
        elif count:
            for index, row in zip(indices, own.unsqueeze(1), strict=True):
                rule = pattern.of_sequence(index).at(row % length)
                found += [BatchGroup(group.to(device), row) for group in layout(rule, count)]
    return found


# Layouts are Python: compiled code steps out here and goes on behind.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def share_read(pattern: Pattern, length: int, heads: Sequence[int]) -> float:
    """Return the share of all pairs that blocks look at, those that are masked too."""
    rules = {pattern.of_head(head) for head in heads}
    groups = [group for rule in rules for group in kept_layout(rule, length, torch.device("cpu"))]
    read = sum(group.queries.numel() * group.keys.size(1) for group in groups)
    return read / len(rules) / length**2
