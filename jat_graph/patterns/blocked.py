"""Attention block by block: each block of queries with just the keys that it needs."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.patterns.base import Pattern
from jat_graph.patterns.layout import BlockGroup, layout, shared_layout
from jat_graph.wide_attention import wide_attention


def blocked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pattern: Pattern,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Return attention under a pattern, storing nothing of size L×L.

    Args:
        query: ``[B, H, L, F]``, without padding.
        key: ``[B, H, L, F]``.
        value: ``[B, H, L, Dv]``.
        pattern: Which pairs are allowed, the same for all heads.
        dropout_p: Dropout of the attention probabilities.
        scale: Factor of the scores.

    Returns:
        The outputs, zeros for a query without a key.

    Shapes:
        - **output:** ``[B, H, L, Dv]``
    """
    if not pattern.by_sequence:
        groups = shared_layout(pattern, query.size(2), query.device)
        return _run_groups(query, key, value, groups, dropout_p, scale)
    outputs = []
    for place in range(query.size(0)):
        one = slice(place, place + 1)
        groups = tuple(g.to(query.device) for g in layout(pattern, query.size(2), place))
        outputs.append(_run_groups(query[one], key[one], value[one], groups, dropout_p, scale))
    return torch.cat(outputs)


def _run_groups(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    groups: tuple[BlockGroup, ...],
    dropout_p: float,
    scale: float,
) -> Tensor:
    output = value.new_zeros(*query.shape[:3], value.size(-1))
    for group in groups:
        rows = _gather(query, group.queries)
        part = wide_attention(
            rows,
            _gather(key, group.keys),
            _gather(value, group.keys),
            group.mask,
            dropout_p,
            False,
            scale,
        )  # [B·n, H, height, Dv]
        part = part.unflatten(0, (query.size(0), -1)).transpose(1, 2).flatten(2, 3)
        output = output.index_copy(2, group.queries.flatten(), part.to(output.dtype))
    return output


def _gather(tensor: Tensor, index: Tensor) -> Tensor:
    """Return the tokens of each block: ``[B, H, L, D]`` and ``[n, m]`` give ``[B·n, H, m, D]``."""
    rows = tensor.index_select(2, index.flatten()).unflatten(2, index.shape)
    return rows.transpose(1, 2).flatten(0, 1)
