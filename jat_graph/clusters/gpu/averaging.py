"""Means of nodes in Triton: one program for so many clusters that four levels are whole."""

import triton
import triton.language as tl

CLUSTERS = tl.constexpr(64)  # of a program: one node of the fourth level
SOME = tl.constexpr(16)  # at a time


@triton.jit
def _above(x, spread, N: tl.constexpr, D: tl.constexpr):
    """Return the means of four in a row, [N, D], and how far what is below is from them."""
    parts = tl.reshape(x, [N, 4, D])
    mean = tl.sum(parts, 1) / 4
    off = parts - mean[:, None, :]
    squares = tl.sum(off * off, 2)
    below = tl.reshape(spread, [N, 4])
    return mean, tl.sqrt(tl.sum(squares + below * below, 1) / 4)


@triton.jit
def _store(
    means, spreads, x, spread, index, number, width, WIDTH: tl.constexpr, KEYS: tl.constexpr
):
    """Store the means of some nodes of a level, and their spreads if they are of keys."""
    there = index < number
    places = index[:, None] * WIDTH + width[None, :]
    tl.store(means + places, x, mask=there[:, None] & (width < WIDTH)[None, :])
    if KEYS:
        tl.store(spreads + index, spread, mask=there)


@triton.jit(do_not_specialize=["rows_each", "count0", "count1", "count2", "count3"])
def average(
    rows, table, stride, mean0, mean1, mean2, mean3, spread0, spread1, spread2, spread3,
    rows_each, count0, count1, count2, count3,
    SIZE: tl.constexpr, MEMBERS: tl.constexpr, LEVELS: tl.constexpr, WIDTH: tl.constexpr,
    D: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Write the means of all nodes over some clusters, and the spreads of keys."""
    head = tl.program_id(1).to(tl.int64)
    rows += head * rows_each
    table += head * stride
    mean0 += head * count0 * WIDTH
    mean1 += head * count1 * WIDTH
    mean2 += head * count2 * WIDTH
    mean3 += head * count3 * WIDTH
    spread0 += head * count0
    spread1 += head * count1
    spread2 += head * count2
    spread3 += head * count3
    width = tl.arange(0, D)
    member = tl.arange(0, MEMBERS)
    first = tl.program_id(0) * CLUSTERS
    third = tl.zeros((4, D), tl.float32)
    thirds = tl.zeros((4,), tl.float32)
    for part in range(CLUSTERS // SOME):
        cluster = first + part * SOME + tl.arange(0, SOME)
        there = (cluster < count0)[:, None] & (member < SIZE)[None, :]
        row = tl.load(rows + cluster[:, None] * SIZE + member[None, :], mask=there, other=0)
        inside = there[:, :, None] & (width < WIDTH)[None, None, :]
        places = row[:, :, None] * WIDTH + width[None, None, :]
        x = tl.load(table + places, mask=inside, other=0.0).to(tl.float32)
        mean = tl.sum(x, 1) / SIZE
        off = tl.where(inside, x - mean[:, None, :], 0.0)
        spread = tl.sqrt(tl.sum(tl.sum(off * off, 2), 1) / SIZE)
        _store(mean0, spread0, mean, spread, cluster, count0, width, WIDTH, KEYS)
        if LEVELS > 1:
            mean, spread = _above(mean, spread, 4, D)
            index = first // 4 + part * 4 + tl.arange(0, 4)
            _store(mean1, spread1, mean, spread, index, count1, width, WIDTH, KEYS)
            if LEVELS > 2:
                mean, spread = _above(mean, spread, 1, D)
                index = first // 16 + part + tl.arange(0, 1)
                _store(mean2, spread2, mean, spread, index, count2, width, WIDTH, KEYS)
                here = tl.arange(0, 4) == part
                third = tl.where(here[:, None], mean, third)
                thirds = tl.where(here, spread, thirds)
    if LEVELS > 3:
        mean, spread = _above(third, thirds, 1, D)
        index = first // 64 + tl.arange(0, 1)
        _store(mean3, spread3, mean, spread, index, count3, width, WIDTH, KEYS)
