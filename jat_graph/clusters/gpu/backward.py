"""How gradients of trees are launched on GPUs."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from jat_graph.clusters.choice import Choice, Nodes
from jat_graph.clusters.gpu import gradients
from jat_graph.clusters.tree import FAN, SINKS

ROWS = 32  # queries at a time
KEYS = 16  # keys or nodes of a program
EACH = 1024  # tokens from which a program sums what comes to the first keys


def add_gradients(
    query: Tensor, come: Tensor, lse: Tensor, less: Tensor,
    key: Tensor, value: Tensor, choice: Choice, nodes: Nodes,
) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
    """Return the gradients of keys and of nodes' means, and those of values and of theirs."""
    heads, tokens, width = query.shape
    kv, length, wide = value.shape
    rule = choice.rule
    group = heads // kv
    top = choice.opened.size(2)
    tables = [(x.contiguous(), y.contiguous()) for x, y in zip(*nodes[:2], strict=True)]
    tables = [(key, value), *tables[: top + 1]]
    sums = [tuple(torch.zeros_like(x, dtype=torch.float32) for x in pair) for pair in tables]
    shared = {
        "WIDTH": width,
        "WIDE": wide,
        "D": max(16, triton.next_power_of_2(width)),
        "DV": max(16, triton.next_power_of_2(wide)),
        "ROWS": ROWS if width < 256 else 16,
    }
    warps = 4 if width < 128 else 8
    given = query, come
    members = choice.tree.keys.contiguous()
    lists = [choice.read, *choice.opened.unbind(2)]
    chosen = [{"WANTED": x.size(2), "STRIDE": x.stride(1)} for x in lists]

    def add_picked(level: int, table: int, **own: Any) -> None:
        """Add what comes to the children of a level's nodes from those that picked them."""
        number = tables[level + 1][0].size(1)
        items = lists[level].reshape(kv, -1)
        items, order = items.where(items >= 0, number).sort(dim=1, stable=True)
        places = torch.arange(number + 1, dtype=items.dtype, device=items.device)
        starts = torch.searchsorted(items, places.repeat(kv, 1))
        below = max(0, level - 1)
        counts = tokens, group, number, tables[table][0].size(1), items.size(1), members.size(1)
        gradients.picked[number, kv](
            *(*given, *tables[table], members, order, starts, lists[below], lse, less),
            *(*sums[table], *counts, own.pop("bias")),
            EACH=lists[level].size(2),
            SINKS=SINKS,
            KEYS=max(KEYS, triton.next_power_of_2(own["CHILDREN"])),
            num_warps=warps,
            **(shared | own | chosen[below]),
        )

    first = [lse.new_zeros(kv, triton.cdiv(tokens, EACH), SINKS, x) for x in (width, wide)]
    # Behind a key, so many tokens may have it near; some first ones read all.
    counts = tokens, length, group, rule.window + rule.segment, rule.dense_below, EACH
    own = {"SIZE": rule.size, "SINKS": SINKS, "CAUSAL": rule.causal}
    with torch.cuda.device_of(query):
        for blocks, into, is_first in (
            (triton.cdiv(length, KEYS), sums[0], False),
            (first[0].size(1), first, True),
        ):
            gradients.near[blocks, kv](
                *(*given, *tables[0], choice.seen, lse, less, *into, *counts),
                **(shared | own),
                FIRST=is_first,
                KEYS=KEYS,
                num_warps=warps,
            )
        for total, part in zip(sums[0], first, strict=True):
            total[:, :SINKS] += part.sum(1)[:, :length]
        if choice.tree.clusters:
            add_picked(0, 0, bias=0.0, CHILDREN=rule.size, OF_KEYS=True)
        for level in range(top + 1) if rule.rest and choice.tree.clusters else ():
            bias = math.log(rule.size * FAN**level)
            number = tables[level + 1][0].size(1)
            gradients.met[triton.cdiv(number, KEYS), kv](
                *(*given, *tables[level + 1], lists[level], choice.seen, lse, less),
                *(*sums[level + 1], tokens, group, rule.top, number, bias),
                **(shared | chosen[level]),
                LEVEL=level,
                TOP=top,
                KEYS=KEYS,
                num_warps=warps,
            )
            if level < top:
                add_picked(level + 1, level + 1, bias=bias, CHILDREN=FAN, OF_KEYS=False)
    return [x for x, _ in sums], [y for _, y in sums]
