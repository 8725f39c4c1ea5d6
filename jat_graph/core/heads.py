"""Heads of a layer: taken apart, put together, and what a kind of heads gives for each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

Features: TypeAlias = tuple[Tensor, Tensor, Tensor]  # queries, keys and values, [B, H, L, ·] each


class HeadGroup(NamedTuple):
    """Heads whose scores are the plain product of these features."""

    heads: tuple[int, ...]  # in rising order
    query: Tensor  # [B, len(heads), L, F]
    key: Tensor  # [B, len(heads), L, F]; ordinary heads may share them in even groups
    value: Tensor  # [B, len(heads), L, Dv]
    jumps: bool  # False for ordinary heads, whose features are those that were given
    value_update: Tensor | None = None  # to add to their outputs, [B, len(heads), L, Dv]

    def finish(self, output: Tensor) -> Tensor:  # [B, len(heads), L, Dv]
        return output if self.value_update is None else output + self.value_update.to(output.dtype)


class HeadOutput(NamedTuple):
    """Heads that are no plain attention on features."""

    heads: tuple[int, ...]  # in rising order
    output: Tensor  # [B, len(heads), Lq, Dv]


HeadParts: TypeAlias = Sequence[HeadGroup | HeadOutput]


def split_heads(
    tensor: Tensor,  # [B, H, ...]
    groups: list[tuple[int, ...]],
) -> list[Tensor]:  # [B, len(group), ...]
    """Return the heads of each group, as views where they are neighbours."""
    # One operation cuts them all, so that its backward pass writes the gradient once; cutting group
    # by group would add up one zero-filled tensor a group.
    if len(groups) == 1:
        return [tensor]
    runs = _runs(groups)
    inner = _heads_inside_tokens(tensor)
    pieces = _swap(tensor, inner).split_with_sizes([size for _, size in runs], dim=1 + inner)
    parts = []
    for number in range(len(groups)):
        mine = [piece for (owner, _), piece in zip(runs, pieces, strict=True) if owner == number]
        part = mine[0] if len(mine) == 1 else torch.cat(mine, dim=1 + inner)
        parts.append(_swap(part, inner))
    return parts


def merge_heads(
    groups: list[tuple[int, ...]],
    parts: list[Tensor],  # Tensors [B, len(group), ...]
) -> Tensor:  # [B, H, ...]
    """Put the parts' heads back into rising order, along dimension 1."""
    if len(parts) == 1:
        return parts[0]
    runs = _runs(groups)
    inner = any(_heads_inside_tokens(part) for part in parts)
    pieces = []
    for number, part in enumerate(parts):
        sizes = [size for owner, size in runs if owner == number]
        part = _swap(part, inner)
        cut = [part] if len(sizes) == 1 else part.split_with_sizes(sizes, dim=1 + inner)
        pieces.append(iter(cut))
    return _swap(torch.cat([next(pieces[owner]) for owner, _ in runs], dim=1 + inner), inner)


def neighbours(heads: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the runs of heads, or of other indices in rising order, that follow each other."""
    runs = groupby(enumerate(heads), lambda entry: entry[1] - entry[0])
    return [tuple(head for _, head in run) for _, run in runs]


def _runs(groups: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Return the group and the length of each run of neighbouring heads, in rising order."""
    owners = sorted((head, number) for number, group in enumerate(groups) for head in group)
    runs = groupby(number for _, number in owners)
    return [(owner, len(list(run))) for owner, run in runs]


def _heads_inside_tokens(tensor: Tensor) -> bool:
    """Tell whether memory holds all heads of a token together, as a projection writes them."""
    return tensor.dim() == 4 and tensor.stride(1) < tensor.stride(2)


def _swap(tensor: Tensor, inner: bool) -> Tensor:
    """Swap heads and tokens, so that copies keep the layout in memory."""
    return tensor.transpose(1, 2) if inner else tensor
