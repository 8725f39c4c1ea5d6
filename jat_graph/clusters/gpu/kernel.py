"""Descending a tree and reading along it, by Triton: sixteen queries at a time, in one launch."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from jat_graph.clusters import naive
from jat_graph.clusters.choice import Choice, Nodes
from jat_graph.clusters.draws import Dropout
from jat_graph.clusters.tree import FAN, LEAN, LEVELS, SINKS

ROWS = 16  # queries of a tile, the fewest that tensor cores take
KEYS = 32  # keys or nodes next to each other that a tile reads at a time
FEW = 8  # keys that each query has of its own, at a time


def unsupported(choice: Choice, kept: Dropout = None) -> str | None:
    """Return why the kernel does not read a choice, or None."""
    rule = choice.rule
    if kept is not None:
        return "dropout"
    if not rule.keys:
        return "keys=0"
    if rule.causal and rule.segment % ROWS:
        return f"a segment that is no multiple of {ROWS}"
    return None


def choose(query: Tensor, key: Tensor, empty: Choice, nodes: Nodes) -> Choice:
    """Let tokens descend the tree, which fills in a choice; the query is scaled."""
    if unsupported(empty):
        return naive.choose(query, key, empty, nodes)
    _launch(query, key, key, empty, nodes, chosen=False)
    return empty


def read(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    choice: Choice,
    nodes: Nodes,
    chosen: bool = True,
    kept: Dropout = None,
) -> tuple[Tensor, Tensor]:  # [H, T, Dv], [H, T]
    """Return what tokens read, and the logarithm of the sum of e to their scores."""
    if unsupported(choice, kept):
        return naive.read(query, key, value, choice, nodes, chosen, kept)
    return _launch(query, key, value, choice, nodes, chosen)


differentiate = naive.differentiate


def _launch(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, chosen: bool
) -> tuple[Tensor, Tensor]:
    heads, tokens, width = query.shape
    kv, length, wide = value.shape
    rule, group = choice.rule, heads // kv
    together = min(ROWS, triton.next_power_of_2(group)) if tokens < ROWS else 1
    step = ROWS // together
    # Tokens of a tile see the same clusters: tiles begin where a segment is complete.
    first = SINKS + rule.window - 1 - (length - tokens)
    shift = -first % step if rule.causal else 0
    tiles = triton.cdiv(tokens + shift, step)
    output = query.new_empty(heads, tokens, wide, dtype=torch.float32)
    lse = query.new_empty(heads, tokens, dtype=torch.float32)
    levels = choice.opened.size(2)
    means = [(x[: levels + 1] + x[:1] * LEVELS)[:LEVELS] for x in nodes[:3]]
    grid = tiles, kv * triton.cdiv(group, together)
    _read[grid](
        *(x.contiguous() for x in (query, key, value, choice.tree.keys)),
        *(x.contiguous() for part in means for x in part),
        choice.seen, choice.opened, choice.read, output, lse,
        tokens, length, choice.tree.keys.size(1), group, shift,
        min(rule.margin, torch.finfo(torch.float32).max), LEAN * width**-0.5, rule.top,
        *(x.size(1) for x in means[0]),
        WIDTH=width, WIDE=wide,
        D=max(16, triton.next_power_of_2(width)), DV=max(16, triton.next_power_of_2(wide)),
        TOGETHER=together, SIZE=rule.size, LOG_SIZE=math.log(rule.size), SINKS=SINKS,
        CLUSTERS=rule.clusters, GROUPS=rule.groups, TOP=levels,
        KEEP=max(2, triton.next_power_of_2(rule.clusters)),
        KEEP_GROUPS=max(2, triton.next_power_of_2(rule.groups)),
        CAUSAL=rule.causal, REST=rule.rest, CHOSEN=chosen,
        ROWS=ROWS, KEYS=KEYS, FEW=FEW, num_warps=8,
    )  # fmt: skip
    return output, lse


@triton.jit
def _update(most, mass, total, scores):  # type: ignore[no-untyped-def]
    """Return an online softmax that has met more scores, and what e to these is."""
    new = tl.maximum(most, tl.max(scores, 1))
    safe = tl.where(new > float("-inf"), new, 0.0)
    factor = tl.exp(most - safe)
    weights = tl.exp(scores - safe[:, None])
    return new, mass * factor + tl.sum(weights, 1), total * factor[:, None], weights


@triton.jit
def _packed(scores, nodes, fits):  # type: ignore[no-untyped-def]
    """Return integers in the order of scores, of equal ones the first node's before others'."""
    bits = scores.to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    both = (bits.to(tl.int64) << 32) | (0x7FFFFFFF - nodes).to(tl.int64)
    return tl.where(fits, both, -0x7FFFFFFFFFFFFFFF)


@triton.jit
def _merge(best, more, ROWS: tl.constexpr, KEEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the best of two as many."""
    return tl.topk(tl.reshape(tl.join(best, more), [ROWS, 2 * KEEP]), KEEP)


@triton.jit
def _store_best(best, place, count, ROWS: tl.constexpr, KEEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Store the nodes of the best, in rising order, and -1 for none."""
    slot = tl.arange(0, KEEP)[None, :]
    found = (best > -0x7FFFFFFFFFFFFFFF) & (slot < count)
    nodes = tl.where(found, 0x7FFFFFFF - (best & 0x7FFFFFFF).to(tl.int32), 0x7FFFFFFF)
    nodes = tl.sort(nodes)
    return tl.where(nodes < 0x7FFFFFFF, nodes, -1)


@triton.jit
def _among(nodes, listed):  # type: ignore[no-untyped-def]
    """Return which nodes, [rows or 1, n], are in the lists [rows, k]."""
    return tl.max((nodes[:, :, None] == listed[:, None, :]).to(tl.int32), 2) > 0


@triton.jit
def _read(  # type: ignore[no-untyped-def]
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
    minus = float("-inf")
    parts = tl.cdiv(group, TOGETHER)
    head = (tl.program_id(1) // parts).to(tl.int64)  # of keys
    row = tl.arange(0, ROWS)
    token = tl.program_id(0) * (ROWS // TOGETHER) + row // TOGETHER - shift
    own = tl.program_id(1) % parts * TOGETHER + row % TOGETHER  # head of queries in the group
    valid = (token >= 0) & (token < tokens) & (own < group)
    place = (head * group + own) * tokens + token  # of the query
    width, wide = tl.arange(0, D), tl.arange(0, DV)
    here = valid[:, None] & (width < WIDTH)[None, :]
    q = tl.load(query + place[:, None] * WIDTH + width[None, :], mask=here, other=0.0)
    clusters = tl.load(seen + token, mask=valid, other=0)
    last = length - tokens + token if CAUSAL else tl.zeros_like(token) + length - 1
    start = SINKS + clusters * SIZE  # of near keys
    most = tl.zeros((ROWS,), tl.float32) + minus
    mass = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, DV), tl.float32)
    key += head * length * WIDTH
    value += head * length * WIDE
    members += head * clustered
    some = tl.arange(0, KEYS)

    # Sinks, and near keys.
    begin = tl.min(tl.where(valid, start, length), 0) // KEYS * KEYS
    end = tl.max(tl.where(valid, last, -1), 0) + 1
    for block in range(-KEYS if begin else 0, end - begin, KEYS):
        index = (block if block < 0 else begin + block) + some
        index = tl.where(block < 0, index + KEYS, index)
        inside = index < length
        k = tl.load(key + index[None, :].to(tl.int64) * WIDTH + width[:, None],
                    mask=inside[None, :] & (width < WIDTH)[:, None], other=0.0)  # fmt: skip
        v = tl.load(value + index[:, None].to(tl.int64) * WIDE + wide[None, :],
                    mask=inside[:, None] & (wide < WIDE)[None, :], other=0.0)  # fmt: skip
        exact = (index[None, :] < SINKS) | ((index[None, :] >= start[:, None]) & (block >= 0))
        exact &= (index[None, :] <= last[:, None]) & valid[:, None]
        exact &= (block < 0) | (begin == 0) | (index[None, :] >= SINKS)
        scores = tl.where(exact, tl.dot(q, k, input_precision="ieee"), minus)
        most, mass, total, weights = _update(most, mass, total, scores)
        total += tl.dot(weights.to(v.dtype), v, input_precision="ieee")

    active = valid & (clusters > 0)
    number = tl.max(tl.where(valid, clusters, 0), 0)
    if number > 0:
        top = 0
        for level in tl.static_range(TOP):
            if (top == level) & ((number >> 2 * level) > limit) & (number >= 4 << 2 * level):
                top = level + 1
        least = most
        length_of = tl.sqrt(tl.sum(q.to(tl.float32) * q.to(tl.float32), 1)) * lean
        for level in tl.static_range(TOP, -1, -1):
            if level == 0:
                means, values, spreads, count = key0, value0, spread0, count0
            elif level == 1:
                means, values, spreads, count = key1, value1, spread1, count1
            elif level == 2:
                means, values, spreads, count = key2, value2, spread2, count2
            else:
                means, values, spreads, count = key3, value3, spread3, count3
            means += head * count * WIDTH
            values += head * count * WIDE
            spreads += head * count
            bias = LOG_SIZE + level * 1.3862943611198906
            nodes_here = number >> 2 * level
            WANTED: tl.constexpr = GROUPS if level > 0 else CLUSTERS
            ROOM: tl.constexpr = KEEP_GROUPS if level > 0 else KEEP
            slot = tl.arange(0, ROOM)
            if level > 0:
                listed = opened + (place[:, None] * TOP + level - 1) * GROUPS + slot[None, :]
            else:
                listed = picked + place[:, None] * CLUSTERS + slot[None, :]
            kept = active[:, None] & (slot < WANTED)[None, :]
            above = opened + (place[:, None] * TOP + level) * GROUPS  # lists of the level above
            if level == top:
                if not CHOSEN:
                    for block in range(0, nodes_here, KEYS):
                        index = block + some
                        inside = index < nodes_here
                        k = tl.load(means + index[None, :] * WIDTH + width[:, None],
                                    mask=inside[None, :] & (width < WIDTH)[:, None], other=0.0)  # fmt: skip
                        scores = tl.dot(q, k, input_precision="ieee") + bias
                        scores = tl.where(inside[None, :], scores, minus)
                        least = tl.maximum(least, tl.max(scores, 1))
                    least = least - margin
                    best = tl.zeros((ROWS, ROOM), tl.int64) - 0x7FFFFFFFFFFFFFFF
                    for block in range(0, nodes_here, ROOM if ROOM > 16 else 16):
                        SIZE_HERE: tl.constexpr = ROOM if ROOM > 16 else 16
                        index = block + tl.arange(0, SIZE_HERE)
                        inside = index < nodes_here
                        k = tl.load(means + index[None, :] * WIDTH + width[:, None],
                                    mask=inside[None, :] & (width < WIDTH)[:, None], other=0.0)  # fmt: skip
                        scores = tl.dot(q, k, input_precision="ieee")
                        spread = tl.load(spreads + index, mask=inside, other=0.0)
                        scores += length_of[:, None] * spread[None, :]
                        fits = (scores >= least[:, None]) & inside[None, :]
                        more = _packed(scores, index[None, :], fits)
                        if SIZE_HERE > ROOM:
                            more = tl.topk(more, ROOM)
                        best = _merge(best, more, ROWS, ROOM)
                    tl.store(listed, _store_best(best, listed, WANTED, ROWS, ROOM), mask=kept)
                    tl.debug_barrier()
                if REST:
                    found = tl.load(listed, mask=kept, other=-1)
                    for block in range(0, nodes_here, KEYS):
                        index = block + some
                        inside = index < nodes_here
                        k = tl.load(means + index[None, :] * WIDTH + width[:, None],
                                    mask=inside[None, :] & (width < WIDTH)[:, None], other=0.0)  # fmt: skip
                        v = tl.load(values + index[:, None] * WIDE + wide[None, :],
                                    mask=inside[:, None] & (wide < WIDE)[None, :], other=0.0)  # fmt: skip
                        scores = tl.dot(q, k, input_precision="ieee") + bias
                        rest = inside[None, :] & active[:, None] & ~_among(index[None, :], found)
                        scores = tl.where(rest, scores, minus)
                        most, mass, total, weights = _update(most, mass, total, scores)
                        total += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
            elif level < top:
                if not CHOSEN:
                    best = tl.zeros((ROWS, ROOM), tl.int64) - 0x7FFFFFFFFFFFFFFF
                    for block in range(0, 4 * GROUPS, ROOM):
                        child = block + slot
                        parent = tl.load(above + (child // 4)[None, :],
                                         mask=active[:, None] & (child < 4 * GROUPS)[None, :], other=-1)  # fmt: skip
                        node = parent * 4 + (child % 4)[None, :]
                        there = parent >= 0
                        scores = tl.zeros((ROWS, ROOM), tl.float32)
                        for feature in range(0, WIDTH):
                            k = tl.load(means + node * WIDTH + feature, mask=there, other=0.0)
                            one = tl.load(query + place * WIDTH + feature, mask=valid, other=0.0)
                            scores += one[:, None].to(tl.float32) * k.to(tl.float32)
                        spread = tl.load(spreads + node, mask=there, other=0.0)
                        scores += length_of[:, None] * spread
                        more = _packed(scores, node, there & (scores >= least[:, None]))
                        best = _merge(best, more, ROWS, ROOM)
                    tl.store(listed, _store_best(best, listed, WANTED, ROWS, ROOM), mask=kept)
                    tl.debug_barrier()
                if REST:
                    found = tl.load(listed, mask=kept, other=-1)
                    few = tl.arange(0, FEW)
                    for block in range(0, 4 * GROUPS, FEW):
                        child = block + few
                        parent = tl.load(above + (child // 4)[None, :],
                                         mask=active[:, None] & (child < 4 * GROUPS)[None, :], other=-1)  # fmt: skip
                        node = parent * 4 + (child % 4)[None, :]
                        rest = (parent >= 0) & ~_among(node, found)
                        k = tl.load(means + node[:, :, None] * WIDTH + width[None, None, :],
                                    mask=rest[:, :, None] & (width < WIDTH)[None, None, :], other=0.0)  # fmt: skip
                        v = tl.load(values + node[:, :, None] * WIDE + wide[None, None, :],
                                    mask=rest[:, :, None] & (wide < WIDE)[None, None, :], other=0.0)  # fmt: skip
                        scores = tl.sum(q[:, None, :].to(tl.float32) * k.to(tl.float32), 2) + bias
                        scores = tl.where(rest, scores, minus)
                        most, mass, total, weights = _update(most, mass, total, scores)
                        total += tl.sum(weights[:, :, None] * v.to(tl.float32), 1)

        # The keys of clusters that each query picked.
        few = tl.arange(0, FEW)
        for block in range(0, CLUSTERS * SIZE, FEW):
            slot = block + few
            cluster = tl.load(picked + place[:, None] * CLUSTERS + (slot // SIZE)[None, :],
                              mask=active[:, None] & (slot < CLUSTERS * SIZE)[None, :], other=-1)  # fmt: skip
            there = cluster >= 0
            member = tl.load(members + cluster * SIZE + (slot % SIZE)[None, :], mask=there, other=0)
            index = (SINKS + member).to(tl.int64)
            k = tl.load(key + index[:, :, None] * WIDTH + width[None, None, :],
                        mask=there[:, :, None] & (width < WIDTH)[None, None, :], other=0.0)  # fmt: skip
            v = tl.load(value + index[:, :, None] * WIDE + wide[None, None, :],
                        mask=there[:, :, None] & (wide < WIDE)[None, None, :], other=0.0)  # fmt: skip
            scores = tl.sum(q[:, None, :].to(tl.float32) * k.to(tl.float32), 2)
            scores = tl.where(there, scores, minus)
            most, mass, total, weights = _update(most, mass, total, scores)
            total += tl.sum(weights[:, :, None] * v.to(tl.float32), 1)

    mass = tl.where(valid, mass, 1.0)
    there = valid[:, None] & (wide < WIDE)[None, :]
    tl.store(output + place[:, None] * WIDE + wide[None, :], total / mass[:, None], mask=there)
    tl.store(lse + place, most + tl.log(mass), mask=valid)
