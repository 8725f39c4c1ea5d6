"""Take heads apart and put them together again, with one copy forward and one backward."""

from __future__ import annotations

import torch
from torch import Tensor


def split_heads(
    tensor: Tensor,  # [B, H, ...]
    groups: list[tuple[int, ...]],
) -> list[Tensor]:  # [B, len(group), ...]
    """Return the heads of each group, as views where they are neighbours.

    One operation cuts them all, so that its backward pass writes the gradient once; cutting group
    by group would add up one zero-filled tensor a group.
    """
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
    runs, inner = _runs(groups), any(_heads_inside_tokens(part) for part in parts)
    pieces = []
    for number, part in enumerate(parts):
        sizes = [size for owner, size in runs if owner == number]
        part = _swap(part, inner)
        cut = [part] if len(sizes) == 1 else part.split_with_sizes(sizes, dim=1 + inner)
        pieces.append(iter(cut))
    return _swap(torch.cat([next(pieces[owner]) for owner, _ in runs], dim=1 + inner), inner)


def neighbours(heads: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the runs of heads that follow each other."""
    runs: list[tuple[int, ...]] = []
    for head in heads:
        if runs and runs[-1][-1] == head - 1:
            runs[-1] += (head,)
        else:
            runs.append((head,))
    return runs


def _runs(groups: list[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Return the group and the length of each run of neighbouring heads, in rising order."""
    owners = sorted((head, number) for number, group in enumerate(groups) for head in group)
    runs: list[tuple[int, int]] = []
    for _, owner in owners:
        if runs and runs[-1][0] == owner:
            runs[-1] = (owner, runs[-1][1] + 1)
        else:
            runs.append((owner, 1))
    return runs


def _heads_inside_tokens(tensor: Tensor) -> bool:
    """Tell whether memory holds all heads of a token together, as a projection writes them."""
    return tensor.dim() == 4 and tensor.stride(1) < tensor.stride(2)


def _swap(tensor: Tensor, inner: bool) -> Tensor:
    """Swap heads and tokens, so that copies keep the layout in memory."""
    return tensor.transpose(1, 2) if inner else tensor
