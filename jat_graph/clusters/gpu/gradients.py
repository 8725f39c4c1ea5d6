"""Gradients of keys, values and nodes in Triton: a program has some rows, and all that read them.

No sums are atomic, so that runs repeat: what is near, and nodes of the highest level, are met by
all tokens of a range; clusters and children that tokens picked come in the order of a sort.
"""

import triton
import triton.language as tl

from jat_graph.clusters.gpu.descent import load
from jat_graph.clusters.gpu.softmax import top_of


@triton.jit
def _come(
    query, come, lse, less, k, v, place, fits, bias, by_k, by_v, width, wide,
    WIDTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Add the gradients that come to rows, [n, D], from some queries that they fit, [T, n]."""
    there = tl.max(fits.to(tl.int32), 1) > 0
    q = load(query, place, there, width, WIDTH).to(k.dtype)
    grads = load(come, place, there, wide, WIDE).to(v.dtype)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") + bias
    shift = tl.load(lse + place, mask=there, other=0.0)
    weights = tl.exp(tl.where(fits, scores - shift[:, None], float("-inf")))
    by_score = tl.dot(grads, tl.trans(v), input_precision="ieee")
    by_score = weights * (by_score - tl.load(less + place, mask=there, other=0.0)[:, None])
    by_k += tl.dot(tl.trans(by_score).to(q.dtype), q, input_precision="ieee")
    by_v += tl.dot(tl.trans(weights).to(grads.dtype), grads, input_precision="ieee")
    return by_k, by_v


@triton.jit
def _add(table, index, there, x, width, WIDTH: tl.constexpr):
    """Add to rows of a table, which no other program does."""
    places = table + index[:, None] * WIDTH + width[None, :]
    inside = there[:, None] & (width < WIDTH)[None, :]
    tl.store(places, tl.load(places, mask=inside, other=0.0) + x, mask=inside)


@triton.jit
def _unlisted(fits, index, lists, there, WANTED: tl.constexpr):
    """Return which rows, [T or 1, n], are in no list of their query."""
    for slot in range(WANTED):
        fits &= index != tl.load(lists + slot, mask=there, other=-1)[:, None]
    return fits


@triton.jit(do_not_specialize=["tokens", "length", "group", "reach", "before", "each"])
def near(
    query, come, key, value, seen, lse, less, by_key, by_value,
    tokens, length, group, reach, before, each,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    SIZE: tl.constexpr, SINKS: tl.constexpr, CAUSAL: tl.constexpr, FIRST: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Add the gradients of keys that are near; of the ``FIRST`` ones from ``each`` tokens alone."""
    head = tl.program_id(1).to(tl.int64)
    width = tl.arange(0, D)
    wide = tl.arange(0, DV)
    before_them = length - tokens
    index = tl.arange(0, KEYS)
    if FIRST:
        begin = tl.program_id(0) * each
        end = tl.minimum(begin + each, tokens)
        there = (index < SINKS) & (index < length)
    else:
        index += tl.program_id(0) * KEYS
        there = (index >= SINKS) & (index < length)
        begin = 0
        end = tokens
        if CAUSAL:
            begin = tl.maximum(0, tl.program_id(0) * KEYS - before_them)
            last_one = tl.maximum(tl.program_id(0) * KEYS + KEYS + reach, before)
            end = tl.minimum(tokens, last_one - before_them)
    k = load(key + head * length * WIDTH, index, there, width, WIDTH)
    v = load(value + head * length * WIDE, index, there, wide, WIDE)
    by_k = tl.zeros((KEYS, D), tl.float32)
    by_v = tl.zeros((KEYS, DV), tl.float32)
    for own in range(group):
        for block in range(begin, end, ROWS):
            token = block + tl.arange(0, ROWS)
            fits = (token < end)[:, None] & there[None, :]
            if CAUSAL:
                fits &= index[None, :] <= (before_them + token)[:, None]
            if not FIRST:
                clusters = tl.load(seen + token, mask=token < end, other=0)
                fits &= index[None, :] >= (SINKS + clusters * SIZE)[:, None]
            if tl.max(tl.max(fits.to(tl.int32), 1), 0) > 0:
                place = (head * group + own) * tokens + token
                by_k, by_v = _come(
                    query, come, lse, less, k, v, place, fits, 0.0, by_k, by_v, width, wide,
                    WIDTH, WIDE,
                )  # fmt: skip
    if FIRST:
        part = head * tl.num_programs(0) + tl.program_id(0)
        by_key += part * SINKS * WIDTH
        by_value += part * SINKS * WIDE
    else:
        by_key += head * length * WIDTH
        by_value += head * length * WIDE
    _add(by_key, index, there, by_k, width, WIDTH)
    _add(by_value, index, there, by_v, wide, WIDE)


@triton.jit(do_not_specialize=["tokens", "group", "limit", "count"])
def met(
    query, come, means, values, lists, seen, lse, less, by_mean, by_value,
    tokens, group, limit, count, bias,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    LEVEL: tl.constexpr, TOP: tl.constexpr, WANTED: tl.constexpr, STRIDE: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Add the gradients of nodes that all tokens meet, from those that do not open them."""
    head = tl.program_id(1).to(tl.int64)
    width = tl.arange(0, D)
    wide = tl.arange(0, DV)
    index = tl.program_id(0) * KEYS + tl.arange(0, KEYS)
    there = index < count
    k = load(means + head * count * WIDTH, index, there, width, WIDTH)
    v = load(values + head * count * WIDE, index, there, wide, WIDE)
    by_k = tl.zeros((KEYS, D), tl.float32)
    by_v = tl.zeros((KEYS, DV), tl.float32)
    for own in range(group):
        for block in range(0, tokens, ROWS):
            token = block + tl.arange(0, ROWS)
            inside = token < tokens
            clusters = tl.load(seen + token, mask=inside, other=0)
            meets = inside & (top_of(clusters, limit, TOP) == LEVEL)
            fits = meets[:, None] & (index[None, :] < (clusters >> 2 * LEVEL)[:, None])
            if tl.max(tl.max(fits.to(tl.int32), 1), 0) > 0:
                place = (head * group + own) * tokens + token
                fits = _unlisted(fits, index[None, :], lists + place * STRIDE, meets, WANTED)
                by_k, by_v = _come(
                    query, come, lse, less, k, v, place, fits, bias, by_k, by_v, width, wide,
                    WIDTH, WIDE,
                )  # fmt: skip
    _add(by_mean + head * count * WIDTH, index, there, by_k, width, WIDTH)
    _add(by_value + head * count * WIDE, index, there, by_v, wide, WIDE)


@triton.jit(do_not_specialize=["tokens", "group", "number", "count", "entries", "clustered"])
def picked(
    query, come, table, values, members, order, starts, lists, lse, less, by_row, by_value,
    tokens, group, number, count, entries, clustered, bias,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    CHILDREN: tl.constexpr, SINKS: tl.constexpr, OF_KEYS: tl.constexpr, EACH: tl.constexpr,
    WANTED: tl.constexpr, STRIDE: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Add the gradients of a node's children, keys or nodes, from tokens that picked it."""
    node = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    width = tl.arange(0, D)
    wide = tl.arange(0, DV)
    child = tl.arange(0, KEYS)
    there = child < CHILDREN
    index = node * CHILDREN + child
    if OF_KEYS:
        index = SINKS + tl.load(members + head * clustered + index, mask=there, other=0)
    k = load(table + head * count * WIDTH, index, there, width, WIDTH)
    v = load(values + head * count * WIDE, index, there, wide, WIDE)
    by_k = tl.zeros((KEYS, D), tl.float32)
    by_v = tl.zeros((KEYS, DV), tl.float32)
    starts += head * (number + 1) + node
    order += head * entries
    end = tl.load(starts + 1)
    for block in range(tl.load(starts), end, ROWS):
        entry = block + tl.arange(0, ROWS)
        inside = entry < end
        place = head * group * tokens + tl.load(order + entry, mask=inside, other=0) // EACH
        fits = inside[:, None] & there[None, :]
        if not OF_KEYS:
            fits = _unlisted(fits, index[None, :], lists + place * STRIDE, inside, WANTED)
        by_k, by_v = _come(
            query, come, lse, less, k, v, place, fits, bias, by_k, by_v, width, wide, WIDTH, WIDE
        )
    _add(by_row + head * count * WIDTH, index, there, by_k, width, WIDTH)
    _add(by_value + head * count * WIDE, index, there, by_v, wide, WIDE)
