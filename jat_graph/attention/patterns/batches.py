"""Where the tokens of a batch are: layouts of single sequences, put to work on all rows at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from jat_graph.patterns.base import Pattern
from jat_graph.patterns.layout import BlockGroup, kept_layout, layout


class Piece(NamedTuple):
    """Some blocks of queries and their keys, as numbers of rows.

    Args:
        queries: ``[m, height]``.
        keys: ``[m, width]``.
        mask: Which attend to which, ``[m|1, 1, height, width]``; None if all do.
    """

    queries: Tensor
    keys: Tensor
    mask: Tensor | None


class BatchGroup(NamedTuple):
    """Blocks of one layout, and the sequences that have it.

    Args:
        group: Blocks of queries in a sequence of n tokens.
        rows: Number of the row that holds each token of each sequence, ``[m, n]``.
    """

    group: BlockGroup
    rows: Tensor

    def pieces(self, most: int) -> Iterator[Piece]:
        """Yield the blocks of all sequences, some at a time."""
        blocks, width = self.group.keys.shape
        total, some = blocks * self.rows.size(0), max(1, most // width)
        for start in range(0, total, some):
            place = torch.arange(start, min(start + some, total), device=self.rows.device)
            own, block = (place // blocks).unsqueeze(-1), place % blocks
            queries, keys = self.group.queries[block], self.group.keys[block]
            yield Piece(self.rows[own, queries], self.rows[own, keys], self.group.masks(block))


def batch_groups(
    pattern: Pattern,
    valid: Tensor | None,  # Tokens that are not padding, [B|1, L], or None if all are valid
    batch: int,
    length: int,
    device: torch.device,
) -> list[BatchGroup]:
    """Return what there is to do for a batch; padding is left out."""
    rows = torch.arange(batch * length, device=device).view(batch, length)
    if valid is None:
        sizes = {length: list(range(batch))}
    else:
        valid = valid.expand(batch, length)
        rows = rows.gather(1, (~valid).to(torch.uint8).argsort(dim=-1, stable=True))
        sizes = defaultdict(list)
        for place, count in enumerate(valid.sum(-1).tolist()):
            sizes[count].append(place)
    groups = []
    for count, places in sizes.items():
        own = rows[:, :count] if len(places) == batch else rows[places, :count]
        groups += _groups_of_one_length(pattern, own, places, length) if count else []
    return groups


def _groups_of_one_length(
    pattern: Pattern, rows: Tensor, places: list[int], length: int
) -> list[BatchGroup]:
    count, device = rows.size(1), rows.device
    if not pattern.num_sequences:
        return [BatchGroup(group, rows) for group in kept_layout(pattern, count, device)]
    return [
        BatchGroup(group.to(device), own[None])
        for place, own in zip(places, rows, strict=True)
        for group in layout(pattern.of_sequence(place).at(own[None] % length), count)
    ]
