"""How trees are read on GPUs: what the kernel takes, and how it is launched."""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from jat_graph.clusters import naive
from jat_graph.clusters.choice import Choice, Nodes, wide
from jat_graph.clusters.draws import Dropout
from jat_graph.clusters.gpu import reading, splitting
from jat_graph.clusters.tree import FAN, LEAN, LEVELS, SINKS

ROWS = 16  # queries of a tile, the fewest that tensor cores take
KEYS = 16  # that all of them read at a time
FEW = 8  # that each has of its own, at a time
PARTS = 16  # programs that read a tile of few tokens


def unsupported(key: Tensor, choice: Choice, kept: Dropout = None) -> str | None:
    """Return why the kernel does not read a choice, or None."""
    rule = choice.rule
    if kept is not None:
        return "dropout"
    if key.dtype == torch.float64:
        return "float64"
    if not rule.keys:
        return "keys=0"
    if rule.causal and rule.segment % ROWS:
        return f"a segment that is no multiple of {ROWS}"
    if key[0].numel() >= 2**31:
        return "as many keys as no index counts"
    return None


def choose(query: Tensor, key: Tensor, empty: Choice, nodes: Nodes) -> Choice:
    """Let tokens descend the tree, which fills in a choice; the query is scaled."""
    if unsupported(key, empty):
        return naive.choose(wide(query), key, _emptied(empty), nodes)
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
    if unsupported(key, choice, kept):
        choice = choice if chosen else _emptied(choice)
        return naive.read(wide(query), key, value, choice, nodes, chosen, kept)
    return _launch(query, key, value, choice, nodes, chosen)


differentiate = naive.differentiate


def _emptied(choice: Choice) -> Choice:
    """Return a choice whose lists are written to have nothing."""
    choice.opened.fill_(-1)
    choice.read.fill_(-1)
    return choice


def _launch(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, chosen: bool
) -> tuple[Tensor, Tensor]:
    heads, tokens, width = query.shape
    kv, length, wide = value.shape
    rule = choice.rule
    group = heads // kv
    together = 1 if tokens >= ROWS else min(ROWS, triton.next_power_of_2(group))
    step = ROWS // together
    # Tiles begin where a segment is complete: all tokens of one see the same clusters, or none.
    shift = (length - tokens - SINKS - rule.window + 1) % step if rule.causal else 0
    levels = choice.opened.size(2)
    parts = 1 if tokens >= ROWS else PARTS
    output = value.new_empty(heads, tokens, wide)
    lse = query.new_empty(heads, tokens, dtype=torch.float32)
    tables = [(x[: levels + 1] + x[:1] * LEVELS)[:LEVELS] for x in nodes[:3]]
    means, values, spreads = ([x.contiguous() for x in table] for table in tables)
    query, key, value = (x.contiguous() for x in (query, key, value))
    grid = triton.cdiv(tokens + shift, step), kv * triton.cdiv(group, together), parts
    keep, keep_groups = (max(2, triton.next_power_of_2(x)) for x in (rule.clusters, rule.groups))
    room = [lse] * 5  # what parts leave behind
    if parts > 1:
        best = query.new_empty(*lse.shape, parts, max(keep, keep_groups), dtype=torch.int64)
        total = lse.new_empty(*lse.shape, parts, wide)
        room = [best, *lse.new_empty(3, *lse.shape, parts), total]
    lists = choice.seen, choice.opened, choice.read
    numbers = LEAN * width**-0.5, rule.top, *(x.size(1) for x in means)
    shared = {
        "WIDTH": width,
        "WIDE": wide,
        "D": max(16, triton.next_power_of_2(width)),
        "DV": max(16, triton.next_power_of_2(wide)),
        "TOGETHER": together,
        "SIZE": rule.size,
        "LOG_SIZE": math.log(rule.size),
        "SINKS": SINKS,
        "CLUSTERS": rule.clusters,
        "GROUPS": rule.groups,
        "TOP": levels,
        "KEEP": keep,
        "KEEP_GROUPS": keep_groups,
        "CAUSAL": rule.causal,
        "CHOSEN": chosen,
        "ROWS": ROWS,
        "KEYS": KEYS,
        "PARTS": parts,
        "num_warps": 8,
    }
    with torch.cuda.device_of(query):
        if parts > 1:
            splitting.look[grid](
                *(query, key, value, *means, *spreads, *lists, *room),
                *(tokens, length, group, shift, *numbers),
                LOG_FAN=math.log(FAN),
                **shared,
            )
        reading.read[grid](
            *(query, key, value, choice.tree.keys.contiguous(), *means, *values, *spreads),
            *(*lists, output, lse, *room, tokens, length, choice.tree.keys.size(1), group, shift),
            *(min(rule.margin, torch.finfo(torch.float32).max), *numbers),
            REST=rule.rest,
            FEW=FEW,
            **shared,
        )
        if parts > 1:
            splitting.combine[(heads * tokens,)](
                *(*room[2:], output, lse), WIDE=wide, DV=shared["DV"], PARTS=parts
            )
    return output, lse
