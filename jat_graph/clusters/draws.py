"""What dropout draws: numbers that depend on a seed, a head, a token and what it reads alone."""

from __future__ import annotations

from typing import Any, TypeAlias

import torch
from torch import Tensor

# The bits of a number, what neighbours are multiplied by, and what mixes bits (MurmurHash3).
ALL = 2**32 - 1
SPREAD = 0x9E3779B1
MIX = (0x85EBCA6B, 0xC2B2AE35)
FIRST, STEP = -8, -4  # names of nodes, which keys do not have: these count from the first sink, -4

Dropout: TypeAlias = "tuple[float, int] | None"  # share that is kept, and a seed


def mixed(x: Tensor) -> Tensor:
    """Return other numbers of 32 bits, in which nobody sees those that were given."""
    x = (x ^ x >> 16) * MIX[0] & ALL
    x = (x ^ x >> 13) * MIX[1] & ALL
    return x ^ x >> 16


def seeds_of(seed: int, like: Tensor) -> Tensor:  # [H, T, D] -> int64 [H, T]
    """Return numbers from which tokens of heads draw."""
    heads, tokens = (torch.arange(number, device=like.device) for number in like.shape[:2])
    heads = mixed(heads + (seed >> 32) & ALL) ^ (seed & ALL)
    return mixed(mixed(heads).unsqueeze(-1) + tokens * SPREAD & ALL)


def drawn_by(seeds: Tensor, names: Tensor) -> Tensor:
    """Return what is drawn for each name."""
    return mixed(seeds ^ names * SPREAD & ALL)


def node_names(nodes: Any, level: int) -> Any:
    """Return the names of nodes of a level; those of keys count from the first that is no sink."""
    return FIRST + STEP * nodes - level


def most_dropped(share: float) -> int:
    """Return the largest number that drops what it is drawn for."""
    return min(ALL, int((1 - share) * 2**32))
