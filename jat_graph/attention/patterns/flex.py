"""Attention under a pattern through FlexAttention, with a block mask made without L×L work."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from jat_graph.attention.patterns.dense import PatternInputs, same_precision
from jat_graph.patterns.base import Pattern

BLOCK = 128


def run(inputs: PatternInputs) -> Tensor:  # [B, H, L, Dv]
    """Put the valid tokens first, attend by compiled FlexAttention, and put the outputs back."""
    attend = _compiled()
    query, key, value = same_precision(inputs.query, inputs.key, inputs.value)
    batch, heads, length, _ = query.shape
    if inputs.mask.valid is None:
        mask = block_mask(inputs.rule, None, heads, length, query.device)
        output: Tensor = attend(query, key, value, block_mask=mask, scale=inputs.scale)
        return output
    valid = inputs.mask.valid[:, 0].expand(batch, length)
    order = (~valid).to(torch.uint8).argsort(dim=-1, stable=True)
    mask = block_mask(inputs.rule.at(order), valid.sum(-1), heads, length, query.device)
    index = order[:, None, :, None]
    packed = [t.gather(2, index.expand_as(t)) for t in (query, key, value)]
    output = attend(*packed, block_mask=mask, scale=inputs.scale)
    return torch.zeros_like(output).scatter(2, index.expand_as(output), output)


def block_mask(
    pattern: Pattern, counts: Tensor | None, heads: int, length: int, device: torch.device
) -> BlockMask:
    """Return a pattern as FlexAttention takes it (Dong et al. 2024)."""

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        allowed = pattern.mask_mod(b, h, q, k)
        return allowed if counts is None else allowed & (q < counts[b]) & (k < counts[b])

    sequences = max(1, pattern.num_sequences)
    kinds = min(pattern.period, heads)
    wanted = torch.stack(
        [
            torch.stack([wanted_blocks(rule.of_head(head), length) for head in range(kinds)])
            for rule in (pattern.of_sequence(index) for index in range(sequences))
        ]
    ).to(device)  # [B|1, kinds, n, n]
    wanted = wanted[:, torch.arange(heads if kinds > 1 else 1, device=device) % kinds]
    order = (~wanted).to(torch.uint8).argsort(dim=-1, stable=True).int()
    return BlockMask.from_kv_blocks(
        wanted.sum(-1).int(),
        order,
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod,
        seq_lengths=(length, length),
    )


def wanted_blocks(pattern: Pattern, length: int) -> Tensor:  # [n, n]
    """Return which blocks of keys some query of each block of queries may see."""
    first = torch.arange(0, length, BLOCK)
    last = (first + BLOCK - 1).clamp(max=length - 1)
    index = torch.arange(len(first))
    wanted = torch.zeros(len(first), len(first), dtype=torch.bool)
    for run in pattern.key_ranges(first, last, 1, length):
        low, high = run.start.clamp(min=0), run.stop.clamp(max=length)
        inside = (index >= (low // BLOCK)[:, None]) & (index <= ((high - 1) // BLOCK)[:, None])
        wanted |= inside & (low < high)[:, None]
    return wanted


@cache  # not at import: compiling changes torch.distributions
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention)
