"""Trees in Triton: a tile of queries descends and reads, in one launch.

A tile has ``ROWS`` queries of one head of keys: neighbouring tokens of a head, or one token of
several heads. What its queries share, near keys and all nodes of the highest level, comes by
matrix products; what each has of its own is gathered.
"""

import math

import triton
import triton.language as tl

from jat_graph.clusters.gpu.descent import (
    children,
    choose_children,
    choose_top,
    listed_of,
    load,
)
from jat_graph.clusters.tree import FAN

LOG_FAN = tl.constexpr(math.log(FAN))
INTEGERS = "tokens length clustered group shift limit count0 count1 count2 count3".split()


@triton.jit
def _among(nodes, listed):
    """Return which nodes, [rows or 1, n], are in the lists [rows, k]."""
    return tl.max((nodes[:, :, None] == listed[:, None, :]).to(tl.int32), 2) > 0


@triton.jit
def _read_some(q, k, v, fits, bias, most, mass, total, OWN: tl.constexpr):
    """Read keys or nodes: those that all queries share, [n, D], or ``OWN`` ones, [rows, n, D]."""
    if OWN:
        scores = tl.sum(q[:, None, :].to(tl.float32) * k.to(tl.float32), 2)
    else:
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
    scores = tl.where(fits, scores + bias, float("-inf"))
    new = tl.maximum(most, tl.max(scores, 1))
    safe = tl.where(new > float("-inf"), new, 0.0)
    factor = tl.exp(most - safe)
    weights = tl.exp(scores - safe[:, None])
    total *= factor[:, None]
    if OWN:
        total += tl.sum(weights[:, :, None] * v.to(tl.float32), 1)
    else:
        total += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return new, mass * factor + tl.sum(weights, 1), total


@triton.jit
def _read_rest(
    q, means, values, number, chosen, active, bias, most, mass, total, width, wide,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """Read the means of all nodes of a level but of the chosen ones."""
    for block in range(0, number, KEYS):
        index = block + tl.arange(0, KEYS)
        k = load(means, index, index < number, width, WIDTH)
        v = load(values, index, index < number, wide, WIDE)
        fits = (index < number)[None, :] & active[:, None] & ~_among(index[None, :], chosen)
        most, mass, total = _read_some(q, k, v, fits, bias, most, mass, total, False)
    return most, mass, total


@triton.jit
def _read_closed(
    q, means, values, above, chosen, active, bias, most, mass, total, width, wide,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, GROUPS: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Read the means of the children of opened nodes but of the chosen ones."""
    for block in range(0, 4 * GROUPS, FEW):
        node, there = children(above, block + tl.arange(0, FEW), active, GROUPS)
        fits = there & ~_among(node, chosen)
        k = load(means, node, fits, width, WIDTH)
        v = load(values, node, fits, wide, WIDE)
        most, mass, total = _read_some(q, k, v, fits, bias, most, mass, total, True)
    return most, mass, total


@triton.jit
def _visit(
    q, query, means, values, spreads, listed, above, number, level, top, active,
    least, margin, lean, most, mass, total, width, wide, bias,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, GROUPS: tl.constexpr,
    WANTED: tl.constexpr, KEEP: tl.constexpr, REST: tl.constexpr, CHOSEN: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Choose nodes of a level, if none are chosen, and read the means of all others."""
    slot = tl.arange(0, KEEP)
    kept = active[:, None] & (slot < WANTED)[None, :]
    listed = listed[:, None] + slot[None, :]
    some = tl.arange(0, KEYS)
    if level == top:
        if not CHOSEN:
            least = most
            for block in range(0, number, KEYS):
                k = load(means, block + some, block + some < number, width, WIDTH)
                scores = tl.dot(q, tl.trans(k), input_precision="ieee") + bias
                inside = (block + some < number)[None, :]
                least = tl.maximum(least, tl.max(tl.where(inside, scores, float("-inf")), 1))
            least -= margin
            best = choose_top(
                q, means, spreads, number, least, lean, width, WIDTH, ROWS, KEEP, max(KEEP, 16)
            )
            tl.store(listed, listed_of(best, WANTED, KEEP), mask=kept)
            tl.debug_barrier()
        if REST:
            most, mass, total = _read_rest(
                q, means, values, number, tl.load(listed, mask=kept, other=-1), active, bias,
                most, mass, total, width, wide, WIDTH, WIDE, KEYS,
            )  # fmt: skip
    elif level < top:
        if not CHOSEN:
            best = choose_children(
                query, means, spreads, above, active, least, lean, WIDTH, ROWS, GROUPS, KEEP
            )
            tl.store(listed, listed_of(best, WANTED, KEEP), mask=kept)
            tl.debug_barrier()
        if REST:
            most, mass, total = _read_closed(
                q, means, values, above, tl.load(listed, mask=kept, other=-1), active, bias,
                most, mass, total, width, wide, WIDTH, WIDE, GROUPS, FEW,
            )  # fmt: skip
    return most, mass, total, least


@triton.jit
def _read_picked(
    q, key, value, members, listed, active, most, mass, total, width, wide,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, CLUSTERS: tl.constexpr, SIZE: tl.constexpr,
    SINKS: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Read the keys of the clusters that each query picked."""
    for block in range(0, CLUSTERS * SIZE, FEW):
        slot = block + tl.arange(0, FEW)
        inside = active[:, None] & (slot < CLUSTERS * SIZE)[None, :]
        cluster = tl.load(listed[:, None] + (slot // SIZE)[None, :], mask=inside, other=-1)
        fits = cluster >= 0
        member = cluster * SIZE + (slot % SIZE)[None, :]
        index = SINKS + tl.load(members + member, mask=fits, other=0)
        k = load(key, index, fits, width, WIDTH)
        v = load(value, index, fits, wide, WIDE)
        most, mass, total = _read_some(q, k, v, fits, 0.0, most, mass, total, True)
    return most, mass, total


@triton.jit(do_not_specialize=INTEGERS)
def read(
    query, key, value, members,
    key0, key1, key2, key3, value0, value1, value2, value3, spread0, spread1, spread2, spread3,
    seen, opened, picked, output, lse,
    tokens, length, clustered, group, shift, margin, lean, limit, count0, count1, count2, count3,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    TOGETHER: tl.constexpr, SIZE: tl.constexpr, LOG_SIZE: tl.constexpr, SINKS: tl.constexpr,
    CLUSTERS: tl.constexpr, GROUPS: tl.constexpr, TOP: tl.constexpr,
    KEEP: tl.constexpr, KEEP_GROUPS: tl.constexpr,
    CAUSAL: tl.constexpr, REST: tl.constexpr, CHOSEN: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, FEW: tl.constexpr,
):  # fmt: skip
    """Let the queries of a tile descend, unless they have ``CHOSEN``, and read."""
    parts = tl.cdiv(group, TOGETHER)
    head = (tl.program_id(1) // parts).to(tl.int64)  # of keys
    row = tl.arange(0, ROWS)
    token = tl.program_id(0) * (ROWS // TOGETHER) + row // TOGETHER - shift
    own = tl.program_id(1) % parts * TOGETHER + row % TOGETHER  # head of queries in the group
    valid = (token >= 0) & (token < tokens) & (own < group)
    place = (head * group + own) * tokens + token  # of the query
    width = tl.arange(0, D)
    wide = tl.arange(0, DV)
    q = load(query, place, valid, width, WIDTH).to(key.dtype.element_ty)
    clusters = tl.load(seen + token, mask=valid, other=0)
    last = length - tokens + token if CAUSAL else tl.zeros_like(token) + length - 1
    start = SINKS + clusters * SIZE  # of near keys
    most = tl.zeros((ROWS,), tl.float32) - float("inf")
    mass = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, DV), tl.float32)
    key += head * length * WIDTH
    value += head * length * WIDE
    members += head * clustered

    if not CHOSEN:
        for level in tl.static_range(TOP):
            slot = tl.arange(0, KEEP_GROUPS)
            lists = opened + (place[:, None] * TOP + level) * GROUPS + slot[None, :]
            none = tl.zeros((ROWS, KEEP_GROUPS), tl.int32) - 1
            tl.store(lists, none, mask=valid[:, None] & (slot < GROUPS)[None, :])
        places = tl.arange(0, KEEP)
        lists = picked + place[:, None] * CLUSTERS + places[None, :]
        none = tl.zeros((ROWS, KEEP), tl.int32) - 1
        tl.store(lists, none, mask=valid[:, None] & (places < CLUSTERS)[None, :])
        tl.debug_barrier()

    # Sinks, and near keys.
    some = tl.arange(0, KEYS)
    k = load(key, some, some < SINKS, width, WIDTH)
    v = load(value, some, some < SINKS, wide, WIDE)
    fits = (some[None, :] < SINKS) & (some[None, :] <= last[:, None]) & valid[:, None]
    most, mass, total = _read_some(q, k, v, fits, 0.0, most, mass, total, False)
    end = tl.max(tl.where(valid, last, -1), 0) + 1
    for block in range(tl.min(tl.where(valid, start, length), 0), end, KEYS):
        index = block + some
        k = load(key, index, index < length, width, WIDTH)
        v = load(value, index, index < length, wide, WIDE)
        fits = (index[None, :] >= start[:, None]) & (index[None, :] <= last[:, None])
        fits &= valid[:, None]
        most, mass, total = _read_some(q, k, v, fits, 0.0, most, mass, total, False)

    active = valid & (clusters > 0)
    number = tl.max(tl.where(valid, clusters, 0), 0)
    if number > 0:
        top = 0
        for level in tl.static_range(TOP):
            higher = ((number >> 2 * level) > limit) & (number >= 4 << 2 * level)
            top = tl.where((top == level) & higher, level + 1, top)
        leans = lean * tl.sqrt(tl.sum(q.to(tl.float32) * q.to(tl.float32), 1))
        least = most
        for level in tl.static_range(TOP, -1, -1):
            above = opened + (place * TOP + level) * GROUPS  # lists of the level above
            if level == 0:
                means, values, spreads, count = key0, value0, spread0, count0
                listed = picked + place * CLUSTERS
            elif level == 1:
                means, values, spreads, count = key1, value1, spread1, count1
                listed = above - GROUPS
            elif level == 2:
                means, values, spreads, count = key2, value2, spread2, count2
                listed = above - GROUPS
            else:
                means, values, spreads, count = key3, value3, spread3, count3
                listed = above - GROUPS
            most, mass, total, least = _visit(
                q, query + place * WIDTH, means + head * count * WIDTH,
                values + head * count * WIDE, spreads + head * count, listed, above,
                number >> 2 * level, level, top, active, least, margin, leans,
                most, mass, total, width, wide, LOG_SIZE + level * LOG_FAN,
                WIDTH, WIDE, GROUPS, GROUPS if level else CLUSTERS,
                KEEP_GROUPS if level else KEEP, REST, CHOSEN, ROWS, KEYS, FEW,
            )  # fmt: skip
        most, mass, total = _read_picked(
            q, key, value, members, picked + place * CLUSTERS, active, most, mass, total,
            width, wide, WIDTH, WIDE, CLUSTERS, SIZE, SINKS, FEW,
        )  # fmt: skip

    mass = tl.where(valid, mass, 1.0)
    there = valid[:, None] & (wide < WIDE)[None, :]
    tl.store(output + place[:, None] * WIDE + wide[None, :], total / mass[:, None], mask=there)
    tl.store(lse + place, most + tl.log(mass), mask=valid)
