"""How reading is launched on GPUs, for a prompt by a program a tile, for few tokens by several."""

from __future__ import annotations

import math

import torch
import triton
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes
from jat_graph.clusters.gpu import reading, splitting
from jat_graph.clusters.tree import FAN, LEAN, LEVELS, SINKS

ROWS = 16  # queries of a tile, the fewest that tensor cores take
KEYS = 16  # that all of them read at a time
FEATURES = 512  # of those that each has of its own, at a time; half as many with gradients
PARTS = 16  # programs that read a tile of few tokens


def launch(
    query: Tensor, key: Tensor, value: Tensor, choice: Choice, nodes: Nodes, chosen: bool,
    back: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return what tokens read, and the logarithm of the sum of e to their scores.

    With what comes ``back``, the gradients of outputs, those logarithms, and the products of both
    outputs and gradients, the gradients of queries are returned in the place of outputs.
    """
    heads, tokens, width = query.shape
    kv, length, wide = value.shape
    rule = choice.rule
    group = heads // kv
    together = 1 if tokens >= ROWS else min(ROWS, triton.next_power_of_2(group))
    step = ROWS // together
    # Tiles begin where a segment is complete: all tokens of one see the same clusters, or none.
    shift = (length - tokens - SINKS - rule.window + 1) % step if rule.causal else 0
    levels = choice.opened.size(2)
    parts = 1 if tokens >= ROWS or back else PARTS
    if back:
        come, lse, less = back
        output = query.new_empty(query.shape, dtype=torch.float32)
        room = [less] * 5
    else:
        come = query
        output = value.new_empty(tokens, heads, wide).transpose(0, 1)
        lse = query.new_empty(heads, tokens, dtype=torch.float32)
        room = [lse] * 5  # what parts leave behind
    tables = [(x[: levels + 1] + x[:1] * LEVELS)[:LEVELS] for x in nodes[:3]]
    means, values, spreads = ([x.contiguous() for x in table] for table in tables)
    query = query.contiguous()
    key, value = _rows_together(key), _rows_together(value)
    apart = [x.stride(0) // x.size(2) for x in (key, value)]  # rows from a head to the next
    grid = triton.cdiv(tokens + shift, step), kv * triton.cdiv(group, together), parts
    keep, keep_groups = (max(2, triton.next_power_of_2(x)) for x in (rule.clusters, rule.groups))
    if parts > 1:
        best = query.new_empty(*lse.shape, parts, max(keep, keep_groups), dtype=torch.int64)
        total = lse.new_empty(*lse.shape, parts, wide)
        room = [best, *lse.new_empty(3, *lse.shape, parts), total]
    features = FEATURES // 2 if back else FEATURES
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
                *(tokens, length, *apart, group, shift, *numbers),
                LOG_FAN=math.log(FAN),
                **(shared | {"num_warps": 4 if width == 128 else 8}),
            )
        reading.read[grid](
            *(query, come, key, value, choice.tree.keys.contiguous(), *means, *values, *spreads),
            *(*lists, output, lse, *room, tokens, heads, length, *apart),
            *(choice.tree.keys.size(1), group, shift),
            *(min(rule.margin, torch.finfo(torch.float32).max), *numbers),
            REST=rule.rest,
            FEW=max(2, min(8, features // max(shared["D"], shared["DV"]))),
            BACK=back is not None,
            **shared,
        )
        if parts > 1:
            splitting.combine[(heads * tokens,)](
                *(*room[2:], output, lse, tokens, heads), WIDE=wide, DV=shared["DV"], PARTS=parts
            )
    return output, lse


def _rows_together(x: Tensor) -> Tensor:  # [Hkv, n, D]
    """Return keys or values whose rows follow each other; heads may be apart, as in a cache."""
    width = x.size(2)
    return x if x.stride()[1:] == (width, 1) and x.stride(0) % width == 0 else x.contiguous()
