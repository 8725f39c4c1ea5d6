"""Attention under a pattern as a dense mask, and the inputs that every backend takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jat_graph.core.heads import merge_heads, split_heads
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.heads import wide_attention
from jat_graph.jumps.patterns.base import Pattern, pairs_of
from jat_graph.jumps.patterns.positions import Causal


def run(inputs: PatternInputs) -> Tensor:  # [B, H, L, Dv]
    """Return attention under a pattern, its pairs written out as a mask."""
    mask, length, device = inputs.mask, inputs.query.size(2), inputs.query.device
    sizes = {"num_queries": length, "num_keys": length}
    heads = inputs.heads
    allowed = pattern_rows(inputs.pattern, valid=mask.valid, heads=heads, device=device, **sizes)
    rest = TokenMask(causal=mask.causal, pairs=mask.pairs).allowed(length, device)
    if rest is not None:
        allowed = allowed & rest
    if mask.bias is not None:
        allowed = mask.bias.to(inputs.query.dtype).masked_fill(~allowed, -torch.inf)
    return wide_attention(
        inputs.query, inputs.key, inputs.value, allowed, inputs.dropout_p, False, inputs.scale
    )


def pattern_rows(
    pattern: Pattern,
    *,
    valid: Tensor | None,  # [B|1, H|1, num_keys]
    num_queries: int,
    num_keys: int,
    device: torch.device,
    heads: Sequence[int] = (0,),  # what the pattern calls them
) -> Tensor:  # [B|1, H|1, num_queries, num_keys]
    """Return which keys the last queries of a sequence may see."""
    if pattern.num_sequences and valid is not None:
        return _rows_by_sequence(pattern, valid, num_queries, heads)
    first = num_keys - num_queries
    batch = torch.arange(max(1, pattern.num_sequences), device=device)[:, None, None, None]
    head = torch.zeros(1, 1, 1, dtype=torch.long, device=device)
    if pattern.period > 1:
        head = torch.tensor(heads, device=device)[:, None, None]
    rank = torch.arange(num_keys, device=device)[None, None]
    if valid is not None:
        rank = (valid.long().cumsum(-1) - 1).clamp(min=0)  # [B|1, H|1, L]
    rows = pattern.mask_mod(batch, head, rank[..., first:, None], rank[..., None, :])
    if valid is not None:
        rows = rows & valid[..., first:, None] & valid[..., None, :]
    return rows.expand(*rows.shape[:2], num_queries, num_keys)


def _rows_by_sequence(
    pattern: Pattern, valid: Tensor, num_queries: int, heads: Sequence[int]
) -> Tensor:
    """Build the rows of each sequence and head without its padding, and spread them out."""
    length, many = valid.size(-1), len(heads) if pattern.period > 1 else valid.size(1)
    valid = valid.expand(pattern.num_sequences, many, length)
    rows = valid.new_zeros(*valid.shape, length)
    for position, own in enumerate(valid):
        for index, chosen in enumerate(own):
            kept = chosen.nonzero().squeeze(-1)
            rule = pattern.of_sequence(position).at(kept[None]).of_head(heads[index])
            rank = torch.arange(len(kept), device=valid.device)[None]
            rows[position, index][kept[:, None], kept] = pairs_of(rule, rank, rank)[0]
    return rows[:, :, length - num_queries :]


@dataclass(frozen=True)
class PatternInputs:
    """Heads, the pattern and the mask that they attend under."""

    heads: tuple[int, ...]  # what the pattern calls them, in rising order
    query: Tensor  # [B, H, L, F]
    key: Tensor  # [B, H, L, F]
    value: Tensor  # [B, H, L, Dv]
    pattern: Pattern
    mask: TokenMask
    dropout_p: float
    scale: float

    @property
    def rule(self) -> Pattern:
        """The pattern, and causal order if the mask has it."""
        return self.pattern & Causal() if self.mask.causal else self.pattern

    def each_rule(
        self, run: Callable[[PatternInputs, Pattern, Tensor | None], Tensor]
    ) -> Tensor:  # [B, H, L, Dv]
        """Run the heads that share a rule and their valid tokens, ``[B|1, L]``, together."""
        valid = self.mask.valid
        alone = valid is not None and valid.size(1) > 1
        alike: dict[tuple[Pattern, int], list[int]] = {}
        for index, head in enumerate(self.heads):
            alike.setdefault((self.rule.of_head(head), index if alone else 0), []).append(index)
        groups, outputs = [tuple(group) for group in alike.values()], []
        own = [split_heads(tensor, groups) for tensor in (self.query, self.key, self.value)]
        for (rule, _), group, query, key, value in zip(alike, groups, *own, strict=True):
            heads, mask = tuple(self.heads[index] for index in group), self.mask.select_heads(group)
            part = replace(self, heads=heads, query=query, key=key, value=value, mask=mask)
            outputs.append(run(part, rule, None if mask.valid is None else mask.valid[:, 0]))
        return merge_heads(groups, outputs)


def same_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return what SDPA would work on under autocast, else the tensors themselves."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(
        tensor if tensor.dtype == torch.float64 else tensor.to(dtype) for tensor in tensors
    )
