"""Sort the tokens by their scores with each key, and find how far each of them joins."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jat_graph.core.compiling import Array, ceil_div, choose, loop, triton_kernel

if TYPE_CHECKING:
    import numba
    import triton.language as tl


class Ranking(NamedTuple):
    """The threshold graph of every key: an order of the tokens, and whom each of them joins.

    A token joins the strongest tokens of its own sign: the first or the last of the order.

    Args:
        order: Tokens by falling score with the key: positive ones that join somebody from the left
            end, negative ones from the right end, strongest first. What is between them,
            and nobody reaches, may be -1.
        reach: How far each of them joins: c > 0 joins positions 0 to c - 1 of the order, -c < 0
            positions L - c to L - 1, and 0 joins nobody. A token may be among those it joins.

    Shapes:
        - ``order``, ``reach``: ``[B, H, U, L]`` int32

    Reference:
        Mahadev & Peled, *Threshold Graphs and Related Topics*, 1995.
    """

    order: Tensor
    reach: Tensor


def rank_tokens(columns: Tensor, limits: Tensor) -> Ranking:
    """Return the order of the tokens and their reach for every key.

    The reach is searched with the vote itself, X_ij · X_kj > limit as it rounds, no quotient.

    Args:
        columns: Key scores, ``[B, H, U, L]``; NaN, which never votes, where masked. Where a limit
            is below 0, only tokens that are masked for every key may be, as zeros reach them.
        limits: The largest product that is no vote, ``[B, H, U]``.

    Returns:
        The ranking.

    Shapes:
        - **output:** two tensors ``[B, H, U, L]`` int32

    Reference:
        Eq. 2 of the JAT paper, one key at a time; see :class:`Ranking`.
    """
    return Ranking(*_rank_tokens(columns.detach(), limits.detach()))


@torch.library.custom_op("jat_graph::rank_tokens", mutates_args=())
def _rank_tokens(columns: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Rank; an opaque operator, so that torch.compile does not trace the loops."""
    flat = (tensor.flatten(0, 1).contiguous() for tensor in (columns, limits))
    order, reach = choose(columns.device, rank_torch, rank_numba, rank_triton, slow=True)(*flat)
    return order.view(columns.shape), reach.view(columns.shape)


@_rank_tokens.register_fake
def _(columns: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    order = torch.empty_like(columns, dtype=torch.int32, memory_format=torch.contiguous_format)
    return order, torch.empty_like(order)


def rank_torch(columns: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Sort, and search with the vote itself: [G, U, L], [G, U] -> two tensors [G, U, L] int32."""
    length = columns.size(-1)
    # Stable: a masked score follows the zeros, because it was put to the end before.
    masked = columns.isnan().byte().argsort(dim=-1, stable=True)
    scores = columns.gather(-1, masked)
    ranked, order = scores.nan_to_num(nan=0.0).sort(dim=-1, descending=True, stable=True)
    scores, order = scores.gather(-1, order), masked.gather(-1, order)
    positive = scores >= 0
    low = torch.zeros_like(order)  # the strongest `low` of its own sign join
    high = torch.full_like(order, length)  # from `high` on none does
    for _ in range(length.bit_length()):
        middle = (low + high) // 2
        index = torch.where(positive, middle, length - 1 - middle).clamp(0, length - 1)
        joins = scores * ranked.gather(-1, index) > limits.unsqueeze(-1)
        joins = joins & (low < high)
        low = torch.where(joins, middle + 1, low)
        high = torch.where(joins, high, torch.minimum(high, middle))
    return order.int(), torch.where(positive, low, -low).int()


# Bits of a digit of the radix sort, at most: its table of 512 counters fits the fastest cache.
DIGIT = 9


def rank_numba(columns: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Rank by a radix sort, and a pointer for the reach; -1 and 0 where a token joins nobody."""
    if bool((limits < 0).any()):  # a score of zero joins both signs
        return rank_torch(columns, limits)
    order = torch.full(columns.shape, -1, dtype=torch.int32)
    reach = torch.zeros_like(order)
    scores, bits = columns.numpy(), columns.numpy().view(f"u{columns.element_size()}")
    _rank_keys(scores, bits, limits.numpy(), order.numpy(), reach.numpy())
    return order, reach


@loop(parallel=True)
def _rank_keys(columns: Array, bits: Array, limits: Array, order: Array, reach: Array) -> None:
    graphs, num_keys, length = columns.shape
    for task in numba.prange(graphs * num_keys):
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
            for index in range(size):
                values[index] = scores[sorted_tokens[index]]
            _write(order[graph, key], reach[graph, key], sorted_tokens, values[:size], limit, right)


@loop()
def _extremes(scores: Array) -> tuple[np.floating, np.floating]:
    """Return the lowest and the highest score, and at least 0 between them; NaN is no score."""
    low = high = scores.dtype.type(0)
    for score in scores:
        low = score if score < low else low
        high = score if score > high else high
    return low, high


@loop()
def _take_part(
    scores: Array, bits: Array, peak: np.floating, limit: float, weakness: Array, tokens: Array
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


@loop()
def _sort(weakness: Array, tokens: Array, size: int) -> int:
    """Sort by weakness, equal ones by token; return in which of the two buffers the tokens are."""
    widest = weakness.dtype.type(0)
    for index in range(size):
        widest |= weakness[0, index]
    width = 0
    while widest >> weakness.dtype.type(width) > 0:
        width += 1
    passes = (width + DIGIT - 1) // DIGIT
    here = 0
    for number in range(passes):
        digit = (width + passes - 1) // passes
        source, target = (weakness[here], tokens[here]), (weakness[1 - here], tokens[1 - here])
        _sort_digit(source, target, size, number, digit)
        here = 1 - here
    return here


@loop()
def _sort_digit(
    source: tuple[Array, Array], target: tuple[Array, Array], size: int, number: int, digit: int
) -> None:
    (weakness, tokens), (sorted_weakness, sorted_tokens) = source, target
    shift = weakness.dtype.type(number * digit)
    mask = weakness.dtype.type((1 << digit) - 1)
    starts = np.zeros(1 << digit, np.int64)
    for index in range(size):
        starts[np.intp((weakness[index] >> shift) & mask)] += 1
    total = 0
    for value in range(len(starts)):
        starts[value], total = total, total + starts[value]
    for index in range(size):
        slot = np.intp((weakness[index] >> shift) & mask)
        free = np.uintp(starts[slot])
        starts[slot] += 1
        sorted_weakness[free] = weakness[index]
        sorted_tokens[free] = tokens[index]


@loop()
def _write(
    order: Array, reach: Array, tokens: Array, values: Array, limit: float, right: bool
) -> None:
    """Write one side; the weaker a token, the fewer it joins, so one pointer finds all reaches."""
    size, last = len(values), len(order) - 1
    joined = 0
    for rank in range(size - 1, -1, -1):
        while joined < size and values[rank] * values[joined] > limit:
            joined += 1
        index = last - rank if right else rank
        order[index] = tokens[rank]
        reach[index] = -joined if right else joined


BLOCK = 2**24  # scores that are sorted at a time: the sort holds several times as much
INDICES = 256  # that a program searches for


def rank_triton(columns: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
    """Search with the vote itself, after torch's sort.

    A masked token joins nobody; it stands between the signs, where a score of zero that votes
    reaches it, so its features must be zero.
    """
    length = columns.size(-1)
    order = torch.empty(columns.shape, dtype=torch.int32, device=columns.device)
    reach = torch.empty_like(order)
    flat = columns.view(-1, length), limits.view(-1), order.view(-1, length), reach.view(-1, length)
    step = max(1, BLOCK // length)
    with torch.cuda.device_of(columns):
        for start in range(0, len(flat[0]), step):
            scores, limit, *results = (tensor[start : start + step] for tensor in flat)
            finite = scores.nan_to_num(0.0, math.inf, -math.inf)
            # Stable, so that equal scores keep the order of their tokens, whatever sorts them.
            ranked = finite.sort(dim=-1, descending=True, stable=True)
            grid = (len(scores) * ceil_div(length, INDICES),)
            sizes = length, length.bit_length()
            _search[grid](scores, limit, *ranked, *results, *sizes, SIZE=INDICES)
    return order, reach


@triton_kernel()
def _search(
    columns: tl.tensor,
    limits: tl.tensor,
    ranked: tl.tensor,
    tokens: tl.tensor,
    order: tl.tensor,
    reach: tl.tensor,
    length: tl.tensor,
    steps: tl.tensor,
    SIZE: tl.constexpr,
) -> None:
    """Find how many tokens each one joins, counted from the strongest of its own sign.

    The rounded product rises with the other score, so its votes are the first ones in that order.
    """
    tiles = tl.cdiv(length, SIZE)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    index = tl.program_id(0) % tiles * SIZE + tl.arange(0, SIZE)
    inside = index < length
    here = row * length + index
    ranked += row * length
    token = tl.load(tokens + here, mask=inside, other=0)
    score = tl.load(columns + row * length + token, mask=inside, other=0.0)
    limit = tl.load(limits + row)
    from_left = score >= 0
    low = tl.zeros((SIZE,), dtype=tl.int32)  # the first `low` join
    high = tl.zeros((SIZE,), dtype=tl.int32) + length  # from `high` on none does
    for _ in range(steps):
        middle = (low + high) // 2
        other = tl.where(from_left, middle, length - 1 - middle)
        # Nothing is left to search where NaN is read: it does not join.
        value = tl.load(ranked + other, mask=inside & (low < high), other=float("nan"))
        joins = score * value > limit
        low = tl.where(joins, middle + 1, low)
        high = tl.where(joins, high, middle)
    tl.store(reach + here, tl.where(from_left, low, -low), mask=inside)
    tl.store(order + here, token.to(tl.int32), mask=inside)
