"""How trees are read on GPUs: what the kernel takes, and how it is launched."""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from jat_graph.clusters import naive
from jat_graph.clusters.choice import Choice, Nodes
from jat_graph.clusters.draws import Dropout
from jat_graph.clusters.gpu import reading
from jat_graph.clusters.tree import LEAN, LEVELS, SINKS

ROWS = 16  # queries of a tile, the fewest that tensor cores take
KEYS = 16  # that all of them read at a time
FEW = 8  # that each has of its own, at a time


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
        return naive.choose(query, key, _emptied(empty), nodes)
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
        return naive.read(query, key, value, choice, nodes, chosen, kept)
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
    output = query.new_empty(heads, tokens, wide, dtype=torch.float32)
    lse = query.new_empty(heads, tokens, dtype=torch.float32)
    tables = [(x[: levels + 1] + x[:1] * LEVELS)[:LEVELS] for x in nodes[:3]]
    grid = triton.cdiv(tokens + shift, step), kv * triton.cdiv(group, together)
    with torch.cuda.device_of(query):
        reading.read[grid](
            *(x.contiguous() for x in (query, key, value, choice.tree.keys)),
            *(x.contiguous() for table in tables for x in table),
            *(choice.seen, choice.opened, choice.read, output, lse),
            *(tokens, length, choice.tree.keys.size(1), group, shift),
            *(min(rule.margin, torch.finfo(torch.float32).max), LEAN * width**-0.5, rule.top),
            *(x.size(1) for x in tables[0]),
            WIDTH=width,
            WIDE=wide,
            D=max(16, triton.next_power_of_2(width)),
            DV=max(16, triton.next_power_of_2(wide)),
            TOGETHER=together,
            SIZE=rule.size,
            LOG_SIZE=math.log(rule.size),
            SINKS=SINKS,
            CLUSTERS=rule.clusters,
            GROUPS=rule.groups,
            TOP=levels,
            KEEP=max(2, triton.next_power_of_2(rule.clusters)),
            KEEP_GROUPS=max(2, triton.next_power_of_2(rule.groups)),
            CAUSAL=rule.causal,
            REST=rule.rest,
            CHOSEN=chosen,
            ROWS=ROWS,
            KEYS=KEYS,
            FEW=FEW,
            num_warps=8,
        )
    return output, lse
