"""Samples that depend on the seed and the number of valid tokens alone, and their sizes."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from jat_graph.config import JatConfig, PairGraph


def sample_size(config: JatConfig, count: int) -> int:
    """Return min(n, ⌈key_factor · ln n⌉), at least 1: how many queries or keys are sampled.

    The released code rounds the logarithm before it multiplies, for the sample as for U.
    """
    if count == 0:
        return 0
    logarithm = math.log(count)
    if config.jump_graph.key_selection == "sampled_queries":
        logarithm = math.ceil(logarithm)
    return min(count, max(1, math.ceil(config.jump_graph.key_factor * logarithm)))


def sample_sizes(config: JatConfig, count: Tensor, length: int) -> Tensor:
    """Return the size of the sample for each number of tokens, up to a length."""
    graph = config.jump_graph
    sizes: Tensor = _sample_sizes(count, length, graph.key_selection, graph.key_factor)
    return sizes


@torch.library.custom_op("jat_graph::sample_sizes", mutates_args=())
def _sample_sizes(count: Tensor, length: int, key_selection: str, key_factor: float) -> Tensor:
    """Look up; an operator, because torch.compile traces no cache."""
    # In a table for all lengths up to a power of two, so that there are few tables.
    return _size_table(key_selection, key_factor, 1 << length.bit_length(), count.device)[count]


@_sample_sizes.register_fake
def _(count: Tensor, length: int, key_selection: str, key_factor: float) -> Tensor:
    return torch.empty_like(count)


@cache
def _size_table(
    key_selection: str, key_factor: float, length: int, device: torch.device
) -> Tensor:  # [length]
    """Return the size of the sample for each number of tokens below a length."""
    config = JatConfig(PairGraph(key_selection=key_selection, key_factor=key_factor))
    return torch.tensor([sample_size(config, count) for count in range(length)], device=device)


def positions_of_ranks(valid: Tensor, rank: Tensor) -> Tensor:  # [..., L], [..., R]; [..., R]
    """Return where the valid tokens of some ranks from 0 are; anywhere if there is no such one."""
    number = valid.cumsum(-1).contiguous()  # of the valid tokens up to here
    return torch.searchsorted(number, rank.contiguous() + 1).clamp(max=valid.size(-1) - 1)


def draw(seed: int, size: int, purpose: int, device: torch.device) -> Tensor:  # [size]
    """Return ``size`` random integers below 2³¹; the first n of them are the same for any size.

    ``purpose`` tells the streams of different uses apart.
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


def sampled_positions(config: JatConfig, valid: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return positions of sampled valid tokens, ``[B|1, H|1, S]``, and which of them count.

    Of ``valid`` ``[B|1, H|1, L]``, whose number is ``count`` n, without replacement.
    Each rank has a random number that depends on the seed alone; the smallest ones of the first n
    are taken, so that the sample depends on the seed and n.
    """
    length = valid.size(-1)
    size = sample_sizes(config, count, length)
    index = torch.arange(length, device=valid.device)
    # Ties would make the sample depend on the sort: the rank breaks them.
    lots = (draw(config.seed, length, 1, valid.device) << 31) + index
    rank = (valid.cumsum(-1) - 1).clamp(min=0)
    lot = lots[rank].masked_fill(~valid, torch.iinfo(torch.int64).max)
    position = lot.topk(sample_size(config, length), dim=-1, largest=False).indices
    return position, index[: position.size(-1)] < size
