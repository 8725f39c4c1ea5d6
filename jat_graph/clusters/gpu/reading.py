"""Trees in Triton: a tile of queries descends and reads, in one launch.

A tile has ``ROWS`` queries of one head of keys: neighbouring tokens of a head, or one token of
several heads. What its queries share, near keys and all nodes of the highest level, comes by
matrix products; what each has of its own is gathered. Of few tokens several programs read a tile,
each every so many keys and nodes, in :mod:`jat_graph.clusters.gpu.splitting`.
"""

import math

import triton
import triton.language as tl

from jat_graph.clusters.gpu.descent import (
    choose_children,
    choose_top,
    clear,
    listed_of,
    load,
    merge_parts,
)
from jat_graph.clusters.gpu.softmax import (
    of_level,
    read_closed,
    read_near,
    read_picked,
    read_rest,
    rows_of,
    top_of,
)
from jat_graph.clusters.tree import FAN

LOG_FAN = tl.constexpr(math.log(FAN))
INTEGERS = "tokens length key_apart value_apart clustered group shift limit".split()
INTEGERS += "count0 count1 count2 count3".split()


@triton.jit
def _visit(
    q, come, query, means, values, spreads, listed, above, number, level, top, part, bests, place,
    active, least, margin, lean, most, mass, total, width, wide, bias,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, GROUPS: tl.constexpr,
    WANTED: tl.constexpr, KEEP: tl.constexpr, STRIDE: tl.constexpr,
    REST: tl.constexpr, CHOSEN: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, FEW: tl.constexpr, PARTS: tl.constexpr,
    BACK: tl.constexpr,
):  # fmt: skip
    """Choose nodes of a level, if none are chosen, and read the means of all others."""
    slot = tl.arange(0, KEEP)
    kept = active[:, None] & (slot < WANTED)[None, :]
    listed = listed[:, None] + slot[None, :]
    some = tl.arange(0, KEYS)
    if level == top:
        if PARTS > 1:
            if not CHOSEN:
                best = merge_parts(bests, least, place, active, PARTS, ROWS, KEEP, STRIDE)
                tl.store(listed, listed_of(best, WANTED, KEEP), mask=kept)
                tl.debug_barrier()
        elif not CHOSEN:
            least = most
            for block in range(0, number, KEYS):
                k = load(means, block + some, block + some < number, width, WIDTH)
                scores = tl.dot(q, tl.trans(k), input_precision="ieee") + bias
                inside = (block + some < number)[None, :]
                least = tl.maximum(least, tl.max(tl.where(inside, scores, float("-inf")), 1))
            least -= margin
            best = choose_top(
                q, means, spreads, 0, number, least, lean, width, WIDTH, ROWS, KEEP, KEYS, 1
            )
            tl.store(listed, listed_of(best, WANTED, KEEP), mask=kept)
            tl.debug_barrier()
        if REST:
            most, mass, total = read_rest(
                q, come, means, values, number, part, tl.load(listed, mask=kept, other=-1), active,
                bias, most, mass, total, width, wide, WIDTH, WIDE, KEYS, PARTS, BACK,
            )  # fmt: skip
    elif level < top:
        if not CHOSEN:
            best = choose_children(
                query, means, spreads, above, active, least, lean, WIDTH, ROWS, GROUPS, KEEP
            )
            tl.store(listed, listed_of(best, WANTED, KEEP), mask=kept)
            tl.debug_barrier()
        if REST:
            most, mass, total = read_closed(
                q, come, means, values, above, part, tl.load(listed, mask=kept, other=-1), active,
                bias, most, mass, total, width, wide, WIDTH, WIDE, GROUPS, FEW, PARTS, BACK,
            )  # fmt: skip
    return most, mass, total, least


@triton.jit(do_not_specialize=INTEGERS)
def read(
    query, come, key, value, members,
    key0, key1, key2, key3, value0, value1, value2, value3, spread0, spread1, spread2, spread3,
    seen, opened, picked, output, lse, bests, peaks, mosts, masses, totals,
    tokens, heads, length, key_apart, value_apart, clustered, group, shift, margin, lean, limit,
    count0, count1, count2, count3,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    TOGETHER: tl.constexpr, SIZE: tl.constexpr, LOG_SIZE: tl.constexpr, SINKS: tl.constexpr,
    CLUSTERS: tl.constexpr, GROUPS: tl.constexpr, TOP: tl.constexpr,
    KEEP: tl.constexpr, KEEP_GROUPS: tl.constexpr,
    CAUSAL: tl.constexpr, REST: tl.constexpr, CHOSEN: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, FEW: tl.constexpr, PARTS: tl.constexpr,
    BACK: tl.constexpr,
):  # fmt: skip
    """Let the queries of a tile descend, unless they have ``CHOSEN``, and read.

    One of several ``PARTS`` goes on from what :func:`jat_graph.clusters.gpu.splitting.look` left.
    ``BACK`` computes the gradients of queries, from those that ``come`` of outputs, and ``masses``.
    """
    head, token, place, valid = rows_of(tokens, group, shift, TOGETHER, ROWS)
    part = tl.program_id(2)
    width = tl.arange(0, D)
    wide = tl.arange(0, DV)
    q = load(query, place, valid, width, WIDTH).to(key.dtype.element_ty)
    grads = load(come, place, valid, wide, WIDE).to(value.dtype.element_ty) if BACK else q
    clusters = tl.load(seen + token, mask=valid, other=0)
    last = length - tokens + token if CAUSAL else tl.zeros_like(token) + length - 1
    key += head * key_apart * WIDTH
    value += head * value_apart * WIDE
    members += head * clustered
    start = SINKS + clusters * SIZE  # of near keys
    inside = valid[:, None] & (wide < WIDE)[None, :]
    slot = place * PARTS + part
    if BACK:
        most = tl.load(lse + place, mask=valid, other=0.0)
        mass = tl.load(masses + place, mask=valid, other=0.0)
        total = tl.zeros((ROWS, D), tl.float32)
        least = most
    elif PARTS > 1:
        most = tl.load(mosts + slot, mask=valid, other=float("-inf"))
        mass = tl.load(masses + slot, mask=valid, other=0.0)
        total = tl.load(totals + slot[:, None] * WIDE + wide[None, :], mask=inside, other=0.0)
        every = place[:, None] * PARTS + tl.arange(0, PARTS)[None, :]
        least = tl.max(tl.load(peaks + every, mask=valid[:, None], other=float("-inf")), 1)
        least -= margin
    else:
        if not CHOSEN:
            clear(opened, picked, place, valid, TOP, GROUPS, CLUSTERS, KEEP_GROUPS, KEEP)
        most = tl.zeros((ROWS,), tl.float32) - float("inf")
        mass = tl.zeros((ROWS,), tl.float32)
        total = tl.zeros((ROWS, DV), tl.float32)
        least = most
    if PARTS == 1:
        most, mass, total = read_near(
            q, grads, key, value, start, last, valid, length, 0, most, mass, total, width, wide,
            WIDTH, WIDE, SINKS, KEYS, 1, BACK,
        )  # fmt: skip

    active = valid & (clusters > 0)
    number = tl.max(tl.where(valid, clusters, 0), 0)
    if number > 0:
        top = top_of(number, limit, TOP)
        leans = lean * tl.sqrt(tl.sum(q.to(tl.float32) * q.to(tl.float32), 1))
        for level in tl.static_range(TOP, -1, -1):
            above = opened + (place * TOP + level) * GROUPS  # lists of the level above
            means = of_level(level, key0, key1, key2, key3)
            values = of_level(level, value0, value1, value2, value3)
            spreads = of_level(level, spread0, spread1, spread2, spread3)
            count = of_level(level, count0, count1, count2, count3)
            listed = above - GROUPS if level else picked + place * CLUSTERS
            most, mass, total, least = _visit(
                q, grads, query + place * WIDTH, means + head * count * WIDTH,
                values + head * count * WIDE, spreads + head * count, listed, above,
                number >> 2 * level, level, top, part, bests, place, active, least, margin, leans,
                most, mass, total, width, wide, LOG_SIZE + level * LOG_FAN,
                WIDTH, WIDE, GROUPS, GROUPS if level else CLUSTERS,
                KEEP_GROUPS if level else KEEP, max(KEEP, KEEP_GROUPS),
                REST, CHOSEN, ROWS, KEYS, FEW, PARTS, BACK,
            )  # fmt: skip
        most, mass, total = read_picked(
            q, grads, key, value, members, picked + place * CLUSTERS, part, active,
            most, mass, total, width, wide, WIDTH, WIDE, CLUSTERS, SIZE, SINKS, FEW, PARTS, BACK,
        )  # fmt: skip

    if BACK:
        inside = valid[:, None] & (width < WIDTH)[None, :]
        tl.store(output + place[:, None] * WIDTH + width[None, :], total, mask=inside)
    elif PARTS > 1:
        tl.store(mosts + slot, most, mask=valid)
        tl.store(masses + slot, mass, mask=valid)
        tl.store(totals + slot[:, None] * WIDE + wide[None, :], total, mask=inside)
    else:
        mass = tl.where(valid, mass, 1.0)
        spot = token * heads + place // tokens  # heads of a token stand together
        tl.store(output + spot[:, None] * WIDE + wide[None, :], total / mass[:, None], mask=inside)
        tl.store(lse + place, most + tl.log(mass), mask=valid)
