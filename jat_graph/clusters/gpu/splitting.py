"""Few tokens in Triton: several programs read a tile, each every so many keys and nodes.

``look`` reads a part of the near keys and finds the best nodes of a part of those that all tokens
meet; :func:`jat_graph.clusters.gpu.reading.read` goes on from there; ``combine`` makes one of all.
"""

import triton
import triton.language as tl

from jat_graph.clusters.gpu.descent import choose_top, clear, load
from jat_graph.clusters.gpu.reading import INTEGERS
from jat_graph.clusters.gpu.softmax import of_level, read_near, rows_of, top_of


@triton.jit
def _look_at(
    q, means, spreads, bests, number, part, valid, lean, most, width, bias,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, KEEP: tl.constexpr, KEYS: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """Store the best of a part of the nodes of a level, and return the best score met."""
    some = tl.arange(0, KEYS)
    for block in range(part * KEYS, number, PARTS * KEYS):
        k = load(means, block + some, block + some < number, width, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") + bias
        inside = (block + some < number)[None, :]
        most = tl.maximum(most, tl.max(tl.where(inside, scores, float("-inf")), 1))
    least = tl.zeros_like(most) - float("inf")
    best = choose_top(
        q, means, spreads, part, number, least, lean, width, WIDTH, ROWS, KEEP, KEYS, PARTS
    )
    tl.store(bests[:, None] + tl.arange(0, KEEP)[None, :], best, mask=valid[:, None])
    return most


@triton.jit(do_not_specialize=INTEGERS)
def look(
    query, key, value, key0, key1, key2, key3, spread0, spread1, spread2, spread3,
    seen, opened, picked, bests, peaks, mosts, masses, totals,
    tokens, length, key_apart, value_apart, group, shift, lean, limit,
    count0, count1, count2, count3,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    TOGETHER: tl.constexpr, SIZE: tl.constexpr, LOG_SIZE: tl.constexpr, LOG_FAN: tl.constexpr,
    SINKS: tl.constexpr, CLUSTERS: tl.constexpr, GROUPS: tl.constexpr, TOP: tl.constexpr,
    KEEP: tl.constexpr, KEEP_GROUPS: tl.constexpr, CAUSAL: tl.constexpr, CHOSEN: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Read every so many near keys, and find the best of every so many nodes of the top."""
    head, token, place, valid = rows_of(tokens, group, shift, TOGETHER, ROWS)
    part = tl.program_id(2)
    width = tl.arange(0, D)
    wide = tl.arange(0, DV)
    q = load(query, place, valid, width, WIDTH).to(key.dtype.element_ty)
    clusters = tl.load(seen + token, mask=valid, other=0)
    last = length - tokens + token if CAUSAL else tl.zeros_like(token) + length - 1
    if not CHOSEN:
        mine = valid & (part == 0)
        clear(opened, picked, place, mine, TOP, GROUPS, CLUSTERS, KEEP_GROUPS, KEEP)
    most = tl.zeros((ROWS,), tl.float32) - float("inf")
    mass = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, DV), tl.float32)
    most, mass, total = read_near(
        q, q, key + head * key_apart * WIDTH, value + head * value_apart * WIDE,
        SINKS + clusters * SIZE, last, valid, length, part, most, mass, total, width, wide,
        WIDTH, WIDE, SINKS, KEYS, PARTS, False,
    )  # fmt: skip
    slot = place * PARTS + part
    inside = valid[:, None] & (wide < WIDE)[None, :]
    tl.store(mosts + slot, most, mask=valid)
    tl.store(masses + slot, mass, mask=valid)
    tl.store(totals + slot[:, None] * WIDE + wide[None, :], total, mask=inside)
    number = tl.max(tl.where(valid, clusters, 0), 0)
    if not CHOSEN and number > 0:
        top = top_of(number, limit, TOP)
        leans = lean * tl.sqrt(tl.sum(q.to(tl.float32) * q.to(tl.float32), 1))
        for level in tl.static_range(TOP, -1, -1):
            means = of_level(level, key0, key1, key2, key3)
            spreads = of_level(level, spread0, spread1, spread2, spread3)
            count = of_level(level, count0, count1, count2, count3)
            if level == top:
                most = _look_at(
                    q, means + head * count * WIDTH, spreads + head * count,
                    bests + slot * max(KEEP, KEEP_GROUPS), number >> 2 * level, part, valid, leans,
                    most, width, LOG_SIZE + level * LOG_FAN, WIDTH, ROWS,
                    KEEP_GROUPS if level else KEEP, KEYS, PARTS,
                )  # fmt: skip
    tl.store(peaks + slot, most, mask=valid)


@triton.jit(do_not_specialize=["tokens"])
def combine(
    mosts, masses, totals, output, lse, tokens, heads,
    WIDE: tl.constexpr, DV: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Make one of what all parts of a query read."""
    query = tl.program_id(0).to(tl.int64)
    slot = query * PARTS + tl.arange(0, PARTS)
    wide = tl.arange(0, DV)
    most = tl.load(mosts + slot)
    peak = tl.max(most, 0)
    factor = tl.exp(most - peak)
    mass = tl.sum(tl.load(masses + slot) * factor, 0)
    inside = (wide < WIDE)[None, :]
    total = tl.load(totals + slot[:, None] * WIDE + wide[None, :], mask=inside, other=0.0)
    total = tl.sum(total * factor[:, None], 0) / mass
    spot = query % tokens * heads + query // tokens  # heads of a token stand together
    tl.store(output + spot * WIDE + wide, total, mask=wide < WIDE)
    tl.store(lse + query, peak + tl.log(mass))
