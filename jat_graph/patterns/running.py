"""Attention under a pattern: which heads share a rule, and which backend runs it."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.heads import merge_heads, split_heads
from jat_graph.masks import TokenMask
from jat_graph.patterns.base import Pattern
from jat_graph.patterns.blocked import blocked_attention
from jat_graph.patterns.causal import Causal
from jat_graph.patterns.rows import pattern_rows as pattern_rows
from jat_graph.wide_attention import wide_attention


def run_pattern(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pattern: Pattern,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
    backend: str = "auto",
) -> Tensor:
    """Return attention under a pattern and a mask.

    Args:
        query: ``[B, H, L, F]``.
        key: ``[B, H, L, F]``.
        value: ``[B, H, L, Dv]``.
        pattern: Which pairs a head may attend to.
        mask: Which pairs the batch allows.
        dropout_p: Dropout of the attention probabilities.
        scale: Factor of the scores.
        backend: ``"dense"``, ``"blocked"``, ``"flex"``, ``"graph"`` or ``"auto"``. (default:
            ``"auto"``)

    Returns:
        The outputs in the dtype of ``value``; zeros for padding and for a query without a key.

    Raises:
        ValueError: If the backend cannot run.

    Shapes:
        - **output:** ``[B, H, L, Dv]``
    """
    pattern.check_size(query.size(0), query.size(2))
    if backend == "auto":
        general = mask.pairs is not None or mask.bias is not None
        backend = "dense" if general or query.size(2) <= 256 else "blocked"
    if backend == "dense":
        return _dense(query, key, value, pattern, mask, dropout_p, scale)
    return _blocked(query, key, value, pattern, mask, dropout_p, scale)


def _dense(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: Pattern,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
) -> Tensor:
    length, device = query.size(2), query.device
    allowed = pattern_rows(
        pattern,
        valid=mask.valid,
        num_queries=length,
        num_keys=length,
        heads=query.size(1),
        device=device,
    )
    rest = TokenMask(causal=mask.causal, pairs=mask.pairs).allowed(length, device)
    if rest is not None:
        allowed = allowed & rest
    if mask.bias is not None:
        allowed = mask.bias.to(query.dtype).masked_fill(~allowed, -torch.inf)
    return wide_attention(query, key, value, allowed, dropout_p, False, scale)


def _blocked(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: Pattern,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
) -> Tensor:
    if mask.causal:
        pattern = pattern & Causal()
    groups: dict[Pattern, list[int]] = {}
    for head in range(query.size(1)):
        groups.setdefault(pattern.of_head(head), []).append(head)
    heads = [tuple(group) for group in groups.values()]
    tensors = zip(*(split_heads(tensor, heads) for tensor in (query, key, value)), strict=True)
    parts = []
    for own, rule, group in zip(tensors, groups, heads, strict=True):
        valid = mask.select_heads(group).valid
        if valid is not None and valid.size(1) > 1:
            parts.append(_blocked_by_head(*own, rule, valid, dropout_p, scale))
        else:
            parts.append(
                blocked_attention(*own, pattern=rule, valid=valid, dropout_p=dropout_p, scale=scale)
            )
    return merge_heads(heads, parts)


def _blocked_by_head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: Pattern,
    valid: Tensor,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Run heads with padding of their own one by one."""
    heads = zip(*(t.split(1, dim=1) for t in (query, key, value, valid)), strict=True)
    parts = [
        blocked_attention(
            *tensors, pattern=pattern, valid=padding, dropout_p=dropout_p, scale=scale
        )
        for *tensors, padding in heads
    ]
    return torch.cat(parts, dim=1)
