"""A pattern as a tensor of pairs, for short inputs and for rows with a cache."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.patterns.base import Pattern
from jat_graph.patterns.layout import pairs_of


def pattern_rows(
    pattern: Pattern,
    *,
    valid: Tensor | None,  # [B|1, H|1, num_keys]
    num_queries: int,
    num_keys: int,
    heads: int,
    device: torch.device,
) -> Tensor:  # [B|1, H|1, num_queries, num_keys]
    """Return which keys the last queries of a sequence may see."""
    if pattern.num_sequences and valid is not None:
        return _rows_by_sequence(pattern, valid, num_queries, heads)
    first = num_keys - num_queries
    batch = torch.arange(max(1, pattern.num_sequences), device=device)[:, None, None, None]
    head = torch.arange(heads if pattern.period > 1 else 1, device=device)[:, None, None]
    rank = torch.arange(num_keys, device=device)[None, None]
    if valid is not None:
        rank = (valid.long().cumsum(-1) - 1).clamp(min=0)  # [B|1, H|1, L]
    rows = pattern.mask_mod(batch, head, rank[..., first:, None], rank[..., None, :])
    if valid is not None:
        rows = rows & valid[..., first:, None] & valid[..., None, :]
    return rows.expand(*rows.shape[:2], num_queries, num_keys)


def _rows_by_sequence(pattern: Pattern, valid: Tensor, num_queries: int, heads: int) -> Tensor:
    """Build the rows of each sequence and head without its padding, and spread them out."""
    length, many = valid.size(-1), heads if pattern.period > 1 else valid.size(1)
    valid = valid.expand(pattern.num_sequences, many, length)
    rows = valid.new_zeros(*valid.shape, length)
    for place, own in enumerate(valid):
        for head, chosen in enumerate(own):
            kept = chosen.nonzero().squeeze(-1)
            rule = pattern.of_sequence(place).at(kept[None]).of_head(head)
            rank = torch.arange(len(kept), device=valid.device)[None]
            rows[place, head][kept[:, None], kept] = pairs_of(rule, rank, rank)[0]
    return rows[:, :, length - num_queries :]
