"""Attention under a pattern: puts the valid tokens in order and runs a backend."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.heads import merge_heads, split_heads
from jat_graph.masks import TokenMask
from jat_graph.patterns.base import Pattern
from jat_graph.patterns.blocked import blocked_attention
from jat_graph.patterns.causal import Causal
from jat_graph.patterns.rows import pattern_rows
from jat_graph.wide_attention import wide_attention

__all__ = ["pattern_rows", "run_pattern"]


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
    parts = [
        _without_padding(*own, rule, mask.select_heads(group).valid, dropout_p, scale)
        for own, rule, group in zip(tensors, groups, heads, strict=True)
    ]
    return merge_heads(heads, parts)


def _without_padding(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    pattern: Pattern,
    valid: Tensor | None,
    dropout_p: float,
    scale: float,
) -> Tensor:
    if valid is None:
        return blocked_attention(
            query, key, value, pattern=pattern, dropout_p=dropout_p, scale=scale
        )
    batch, heads, length, _ = query.shape
    if valid.size(1) > 1:
        folded = [t.reshape(batch * heads, 1, length, -1) for t in (query, key, value)]
        valid = valid.expand(batch, heads, length).reshape(batch * heads, 1, length)
        output = _without_padding(*folded, pattern, valid, dropout_p, scale)
        return output.view(batch, heads, length, -1)
    outputs = []
    for place, chosen in enumerate(valid[:, 0].expand(batch, length)):
        index = chosen.nonzero().squeeze(-1)
        tensors = [t[place : place + 1].index_select(2, index) for t in (query, key, value)]
        part = blocked_attention(*tensors, pattern=pattern, dropout_p=dropout_p, scale=scale)
        padded = value.new_zeros(1, heads, length, value.size(-1))
        outputs.append(padded.index_copy(2, index, part))
    return torch.cat(outputs)
