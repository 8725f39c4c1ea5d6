"""Heads that are to attend within a pattern, as every backend takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from jat_graph.attention.heads import merge_heads, split_heads
from jat_graph.masks.tokens import TokenMask
from jat_graph.patterns.base import Pattern
from jat_graph.patterns.positions import Causal


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
