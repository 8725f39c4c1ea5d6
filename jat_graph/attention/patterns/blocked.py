"""Attention block by block: each block of queries reads just the keys that it needs."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from jat_graph.attention.patterns.batches import BatchGroup, Piece, batch_groups
from jat_graph.attention.patterns.fused import FusedBlocks
from jat_graph.attention.patterns.job import Job, general_mask_reasons, same_precision
from jat_graph.attention.softmax import wide_attention
from jat_graph.patterns.base import Pattern

# Numbers of keys and values that are gathered at a time: 8 MiB, or 256 MiB on a GPU.
GATHERED, GATHERED_CUDA = 2**21, 2**26


def unsupported(job: Job) -> list[str]:
    """Say why this backend cannot run.

    Args:
        job: What it is given.

    Returns:
        One phrase a reason; empty if it can.
    """
    return general_mask_reasons(job.mask)


# Layouts are Python: compiled code steps out here and goes on behind.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def run(job: Job) -> Tensor:  # [B, H, L, Dv]
    """Return attention under a pattern, storing nothing of size L×L."""
    return job.each_rule(_run_rule)


def _run_rule(job: Job, rule: Pattern, valid: Tensor | None) -> Tensor:
    batch, heads, length, _ = job.query.shape
    tensors = same_precision(job.query, job.key, job.value)
    query, key, value = (tensor.transpose(1, 2).flatten(0, 1) for tensor in tensors)
    groups = batch_groups(rule, valid, batch, length, query.device)
    budget = GATHERED_CUDA if query.is_cuda else GATHERED
    most = budget // (heads * (key.size(-1) + value.size(-1)))
    if query.device.type == "cpu" and not job.dropout_p:
        output: Tensor = FusedBlocks.apply(query, key, value, groups, most, job.scale)  # type: ignore[no-untyped-call]
    else:
        output = _plain_blocks(query, key, value, groups, most, job.dropout_p, job.scale)
    return output.view(batch, length, heads, -1).transpose(1, 2)


def _plain_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    groups: list[BatchGroup],
    most: int,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Run the blocks through SDPA, each again in backward rather than kept."""
    places, parts = [], []
    for piece in (piece for group in groups for piece in group.pieces(most)):
        options = dropout_p, scale
        part = checkpoint(_attend, piece, query, key, value, *options, use_reentrant=False)
        places.append(piece.queries.flatten())
        parts.append(part)
    output = torch.zeros_like(value)
    if not parts:  # zeros that the inputs have a gradient through
        return output + sum(tensor[:0].sum() for tensor in (query, key, value))
    return output.index_copy(0, torch.cat(places), torch.cat(parts))


def _attend(
    piece: Piece, query: Tensor, key: Tensor, value: Tensor, dropout_p: float, scale: float
) -> Tensor:
    def take(rows: Tensor, index: Tensor) -> Tensor:
        return rows.index_select(0, index.flatten()).view(*index.shape, *rows.shape[1:])

    queries, keys, values = (  # [m, H, n, D] each
        take(*pair).transpose(1, 2)
        for pair in ((query, piece.queries), (key, piece.keys), (value, piece.keys))
    )
    part = wide_attention(queries, keys, values, piece.mask, dropout_p, False, scale)
    return part.transpose(1, 2).flatten(0, 1)
