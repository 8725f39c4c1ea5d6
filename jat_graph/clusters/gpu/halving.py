"""Halving keys in Triton: one program makes the clusters of a segment."""

import triton
import triton.language as tl


@triton.jit
def _features(keys, order, first, WIDTH: tl.constexpr, D: tl.constexpr):
    """Load some features of children, [parts, children, features]."""
    index = first + tl.arange(0, D)
    places = order[:, :, None] * WIDTH + index[None, None, :]
    return tl.load(keys + places, mask=(index < WIDTH)[None, None, :], other=0.0).to(tl.float32)


@triton.jit
def _half(along, M: tl.constexpr):
    """Return which half of the children of each part is higher, of equal ones the first."""
    bits = along.to(tl.int32, bitcast=True)
    bits = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) + 0x80000000  # in the order of floats
    least = tl.zeros_like(tl.sum(bits, 1))
    step = tl.zeros_like(least) + 0x80000000
    for _ in range(32):
        more = least + step
        enough = tl.sum((bits >= more[:, None]).to(tl.int32), 1) >= M // 2
        least = tl.where(enough, more, least)
        step = step // 2
    above = bits > least[:, None]
    equal = (bits == least[:, None]).to(tl.int32)
    left = M // 2 - tl.sum(above.to(tl.int32), 1)
    return above | ((equal > 0) & (tl.cumsum(equal, 1) <= left[:, None]))


@triton.jit
def _halve_parts(
    keys, order, ways, P: tl.constexpr, M: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
    VARY: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Put the children of the higher half of each part before the others, or after them."""
    part = tl.arange(0, P)
    child = tl.arange(0, M)
    places = part[:, None] * M + child[None, :]
    own = tl.load(order + places)
    far = tl.zeros((P, M), tl.float32)
    for first in range(0, WIDTH, D):
        x = _features(keys, own, first, WIDTH, D)
        off = x - (tl.sum(x, 1) / M)[:, None, :]
        far += tl.sum(off * off, 2)
    farthest = child[None, :] == tl.argmax(far, 1)[:, None]
    for first in range(0, WIDTH, D):
        x = _features(keys, own, first, WIDTH, D)
        way = tl.sum(tl.where(farthest[:, :, None], x, 0.0), 1) - tl.sum(x, 1) / M
        index = first + tl.arange(0, D)
        tl.store(ways + part[:, None] * WIDTH + index, way, mask=(index < WIDTH)[None, :])
    tl.debug_barrier()
    higher = farthest
    for turn in range(TURNS):
        along = tl.zeros((P, M), tl.float32)
        for first in range(0, WIDTH, D):
            index = first + tl.arange(0, D)
            inside = (index < WIDTH)[None, :]
            way = tl.load(ways + part[:, None] * WIDTH + index, mask=inside, other=0.0)
            along += tl.sum(_features(keys, own, first, WIDTH, D) * way[:, None, :], 2)
        higher = _half(along, M)
        weight = tl.where(higher, 1.0, -1.0)
        weight = tl.where(turn < VARY, along - (tl.sum(along, 1) / M)[:, None], weight)
        most = tl.zeros((P,), tl.float32) + 1.1754943508222875e-38
        tl.debug_barrier()
        for first in range(0, WIDTH, D):
            way = tl.sum(_features(keys, own, first, WIDTH, D) * weight[:, :, None], 1)
            most = tl.maximum(most, tl.max(tl.abs(way), 1))
            index = first + tl.arange(0, D)
            tl.store(ways + part[:, None] * WIDTH + index, way, mask=(index < WIDTH)[None, :])
        tl.debug_barrier()
        for first in range(0, WIDTH, D):
            index = first + tl.arange(0, D)
            inside = (index < WIDTH)[None, :]
            way = tl.load(ways + part[:, None] * WIDTH + index, mask=inside, other=0.0)
            tl.debug_barrier()
            tl.store(ways + part[:, None] * WIDTH + index, way / most[:, None], mask=inside)
        tl.debug_barrier()
    first_is = tl.sum(tl.where(child[None, :] == 0, higher.to(tl.int32), 0), 1)
    same = (higher.to(tl.int32) == first_is[:, None]).to(tl.int32)
    place = tl.where(same > 0, tl.cumsum(same, 1) - 1, M // 2 + tl.cumsum(1 - same, 1) - 1)
    tl.debug_barrier()
    tl.store(order + part[:, None] * M + place, own)
    tl.debug_barrier()


@triton.jit(do_not_specialize=["stride", "number"])
def halve(
    keys, stride, order, ways, number,
    CHILDREN: tl.constexpr, LEVELS: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr,
    VARY: tl.constexpr, TURNS: tl.constexpr,
):  # fmt: skip
    """Halve the children of a block, and halves of them, in the order that is stored."""
    block = tl.program_id(0).to(tl.int64)
    keys += block // number * stride + block % number * CHILDREN * WIDTH
    order += block * CHILDREN
    ways += block * (1 << (LEVELS - 1)) * WIDTH
    tl.store(order + tl.arange(0, CHILDREN), tl.arange(0, CHILDREN))
    tl.debug_barrier()
    start = (block % number * CHILDREN).to(tl.int32)  # of a head's first block
    for level in tl.static_range(LEVELS):
        _halve_parts(keys, order, ways, 1 << level, CHILDREN >> level, WIDTH, D, VARY, TURNS)
    places = tl.arange(0, CHILDREN)
    found = tl.load(order + places)
    tl.debug_barrier()
    tl.store(order + places, found + start)
