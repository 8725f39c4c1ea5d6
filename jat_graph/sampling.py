"""Samples that depend on the seed and the number of valid tokens alone, and the tables by it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from jat_graph.config import JatConfig


def sample_size(config: JatConfig, count: int) -> int:
    """Return min(n, ⌈key_factor · ln n⌉), at least 1: how many queries or keys are sampled.

    The released code rounds the logarithm before it multiplies, for the sample as for U.

    Args:
        config: ``key_selection`` and ``key_factor``.
        count: Valid tokens n.

    Returns:
        The size of the sample, 0 for an empty sequence.
    """
    if count == 0:
        return 0
    logarithm = math.log(count)
    if config.key_selection == "sampled_queries":
        logarithm = math.ceil(logarithm)
    return min(count, max(1, math.ceil(config.key_factor * logarithm)))


def valid_positions(valid: Tensor) -> Tensor:
    """Return the position of each rank among the valid tokens; padding follows.

    Args:
        valid: ``[..., L]`` bool.

    Returns:
        Positions ``[..., L]``.
    """
    return valid.logical_not().to(torch.uint8).argsort(dim=-1, stable=True)


def by_count(
    config: JatConfig, count: Tensor, length: int, rule: Callable[[JatConfig, int], int]
) -> Tensor:
    """Look up a number that depends on n, computed on the CPU for each possible n.

    Args:
        config: Passed to ``rule``.
        count: Valid tokens n, any shape.
        length: Padded length L, the largest n.
        rule: The number for one n.

    Returns:
        int64, the shape of ``count``; nothing waits for the device.
    """
    return torch.tensor([rule(config, n) for n in range(length + 1)], device=count.device)[count]


def draw(seed: int, size: int, purpose: int, device: torch.device) -> Tensor:
    """Return ``size`` random integers below 2³¹; the first n of them are the same for any size.

    Args:
        seed: The config's seed.
        size: How many.
        purpose: Tells the streams of different uses apart.
        device: Where to put them; they are drawn on the CPU.

    Returns:
        int64 ``[size]``.
    """
    numbers: Tensor = _draw(seed, size, purpose)
    return numbers.to(device)


@torch.library.custom_op("jat_graph::draw", mutates_args=())
def _draw(seed: int, size: int, purpose: int) -> Tensor:
    """Draw on the CPU; an operator, because torch.compile cannot trace a generator."""
    # The engine fills in order, one draw an element: a prefix is stable.
    generator = torch.Generator().manual_seed((seed + purpose * 0x9E3779B97F4A7C15) % 2**63)
    return torch.randint(2**31, (size,), generator=generator)


@_draw.register_fake
def _(seed: int, size: int, purpose: int) -> Tensor:
    return torch.empty(size, dtype=torch.long)


def sampled_ranks(config: JatConfig, valid: Tensor, count: Tensor) -> Tensor:
    """Return which valid tokens are sampled, without replacement.

    Each rank has a random number that depends on the seed alone; the smallest ones of the first n
    are taken, so that the sample depends on the seed and n.

    Args:
        config: ``seed``, ``key_selection`` and ``key_factor``.
        valid: Tokens that are not padding, ``[B|1, H|1, L]`` bool.
        count: Their number n, ``[B|1, H|1, 1]``.

    Returns:
        Bool, the shape of ``valid``.
    """
    length = valid.size(-1)
    size = by_count(config, count, length, sample_size)
    numbers = draw(config.seed, length, 1, valid.device).double()
    # Ties would make the sample depend on the sort: the rank breaks them.
    numbers = numbers + torch.arange(length, device=valid.device) / (2 * length)
    rank = valid.cumsum(-1) - 1
    lot = numbers[rank.clamp(min=0)].masked_fill(~valid, torch.inf)
    place = lot.argsort(dim=-1).argsort(dim=-1)
    return (place < size) & valid
