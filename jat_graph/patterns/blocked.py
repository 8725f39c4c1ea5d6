"""Attention block by block: each block of queries reads just the keys that it needs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from jat_graph.patterns.base import Pattern
from jat_graph.patterns.fused import FusedBlocks
from jat_graph.patterns.tasks import Piece, Task, batch_tasks
from jat_graph.wide_attention import wide_attention

# Numbers of keys and values that are gathered at a time.
GATHERED_CPU, GATHERED_CUDA = 2**21, 2**26


def blocked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    pattern: Pattern,
    valid: Tensor | None,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Return attention under a pattern, storing nothing of size L×L.

    Args:
        query: ``[B, H, L, F]``.
        key: ``[B, H, L, F]``.
        value: ``[B, H, L, Dv]``.
        pattern: Which pairs are allowed, the same for all heads.
        valid: Tokens that are not padding, ``[B|1, 1, L]``, or None.
        dropout_p: Dropout of the attention probabilities.
        scale: Factor of the scores.

    Returns:
        The outputs, zeros for padding and for a query without a key.

    Shapes:
        - **output:** ``[B, H, L, Dv]``
    """
    batch, heads, length, _ = query.shape
    tokens = None if valid is None else valid.squeeze(1)
    tasks = batch_tasks(pattern, tokens, batch, length, query.device)
    rows = [tensor.transpose(1, 2).flatten(0, 1) for tensor in (query, key, value)]
    budget = GATHERED_CUDA if query.is_cuda else GATHERED_CPU
    most = budget // (heads * (key.size(-1) + value.size(-1)))
    if query.is_cuda or dropout_p:
        output = _plain_blocks(*rows, tasks, most, dropout_p, scale)
    else:
        output = FusedBlocks.apply(*rows, tasks, most, scale)
    return output.unflatten(0, (batch, length)).transpose(1, 2)


def _plain_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    tasks: list[Task],
    most: int,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Run the blocks through SDPA, each again in backward rather than kept."""
    places, parts = [], []
    for piece in (piece for task in tasks for piece in task.pieces(most)):
        part = checkpoint(_attend, piece, query, key, value, dropout_p, scale, use_reentrant=False)
        places.append(piece.queries.flatten())
        parts.append(part)
    output = value.new_zeros(*query.shape[:2], value.size(-1))
    return output.index_copy(0, torch.cat(places), torch.cat(parts)) if parts else output


def _attend(
    piece: Piece, query: Tensor, key: Tensor, value: Tensor, dropout_p: float, scale: float
) -> Tensor:
    def take(rows: Tensor, index: Tensor) -> Tensor:
        return rows.index_select(0, index.flatten()).unflatten(0, index.shape).transpose(1, 2)

    part = wide_attention(
        take(query, piece.queries),
        take(key, piece.keys),
        take(value, piece.keys),
        piece.mask,
        dropout_p,
        False,
        scale,
    )
    return part.transpose(1, 2).flatten(0, 1).to(value.dtype)
