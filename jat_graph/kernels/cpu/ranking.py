"""Rank tokens in numba: a radix sort of those that take part, and a walk for their reach."""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray
from torch import Tensor

from jat_graph.kernels import portable
from jat_graph.kernels.cpu.compiling import loop, parallel_loop

# Bits of a digit of the radix sort, at most: its table of 512 counters fits the fastest cache.
DIGIT = 9


def rank(
    columns: Tensor,  # Key scores, NaN where masked, [G, U, L]
    limits: Tensor,  # The largest product that is no vote, [G, U]
) -> tuple[Tensor, Tensor]:  # [G, U, L] int32; -1 and 0 where a token joins nobody
    """Return the tokens by falling score with each key, and how far each of them joins."""
    if bool((limits < 0).any()):  # a score of zero joins both signs
        return portable.rank(columns, limits)
    order = torch.full(columns.shape, -1, dtype=torch.int32)
    reach = torch.zeros_like(order)
    scores, bits = columns.numpy(), columns.numpy().view(f"u{columns.element_size()}")
    _rank(scores, bits, limits.numpy(), order.numpy(), reach.numpy())
    return order, reach


@parallel_loop
def _rank(
    columns: NDArray[np.floating],
    bits: NDArray[np.unsignedinteger],
    limits: NDArray[np.floating],
    order: NDArray[np.int32],
    reach: NDArray[np.int32],
) -> None:
    graphs, num_keys, length = columns.shape
    for task in prange(graphs * num_keys):
        graph, key = task // num_keys, task % num_keys
        scores, limit = columns[graph, key], limits[graph, key]
        weakness = np.empty((2, length), bits.dtype)
        tokens = np.empty((2, length), np.int32)
        values = np.empty(length, columns.dtype)
        low, high = _extremes(scores)
        for right in (False, True):
            peak = low if right else high
            size = _take_part(scores, bits[graph, key], peak, limit, weakness[0], tokens[0])
            sorted_tokens = tokens[_sort(weakness, tokens, size)]
            for place in range(size):
                values[place] = scores[sorted_tokens[place]]
            _write(order[graph, key], reach[graph, key], sorted_tokens, values[:size], limit, right)


@loop
def _extremes(scores: NDArray[np.floating]) -> tuple[np.floating, np.floating]:
    """Return the lowest and the highest score, and at least 0 between them; NaN is no score."""
    low = high = scores.dtype.type(0)
    for score in scores:
        low = score if score < low else low
        high = score if score > high else high
    return low, high


@loop
def _take_part(
    scores: NDArray[np.floating],
    bits: NDArray[np.unsignedinteger],
    peak: np.floating,
    limit: float,
    weakness: NDArray[np.unsignedinteger],
    tokens: NDArray[np.int32],
) -> int:
    """List the tokens that join the strongest one of a side, and how much weaker they are.

    Floats of one sign are ordered like the integers of the same bits.
    """
    size = 0
    for token in range(len(scores)):
        if scores[token] == peak:
            top = bits[token]
    for token in range(len(scores)):
        tokens[size] = token
        weakness[size] = top - bits[token]
        size += scores[token] * peak > limit
    return size


@loop
def _sort(weakness: NDArray[np.unsignedinteger], tokens: NDArray[np.int32], size: int) -> int:
    """Sort by weakness, equal ones by token; return in which of the two buffers the tokens are."""
    widest = weakness.dtype.type(0)
    for place in range(size):
        widest |= weakness[0, place]
    width = 0
    while widest >> weakness.dtype.type(width) > 0:
        width += 1
    passes = (width + DIGIT - 1) // DIGIT
    here = 0
    for number in range(passes):
        digit = (width + passes - 1) // passes
        there = 1 - here
        _sort_digit(
            weakness[here], tokens[here], weakness[there], tokens[there], size, number, digit
        )
        here = there
    return here


@loop
def _sort_digit(
    weakness: NDArray[np.unsignedinteger],
    tokens: NDArray[np.int32],
    sorted_weakness: NDArray[np.unsignedinteger],
    sorted_tokens: NDArray[np.int32],
    size: int,
    number: int,
    digit: int,
) -> None:
    shift = weakness.dtype.type(number * digit)
    mask = weakness.dtype.type((1 << digit) - 1)
    starts = np.zeros(1 << digit, np.int64)
    for place in range(size):
        starts[np.intp((weakness[place] >> shift) & mask)] += 1
    total = 0
    for value in range(len(starts)):
        starts[value], total = total, total + starts[value]
    for place in range(size):
        slot = np.intp((weakness[place] >> shift) & mask)
        target = np.uintp(starts[slot])
        starts[slot] += 1
        sorted_weakness[target] = weakness[place]
        sorted_tokens[target] = tokens[place]


@loop
def _write(
    order: NDArray[np.int32],
    reach: NDArray[np.int32],
    tokens: NDArray[np.int32],
    values: NDArray[np.floating],
    limit: float,
    right: bool,
) -> None:
    """Write one side; the weaker a token, the fewer it joins, so one pointer finds all reaches."""
    size, last = len(values), len(order) - 1
    joined = 0
    for rank in range(size - 1, -1, -1):
        while joined < size and values[rank] * values[joined] > limit:
            joined += 1
        place = last - rank if right else rank
        order[place] = tokens[rank]
        reach[place] = -joined if right else joined
