"""Attention under a pattern as a dense mask: any mask, short inputs."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.attention.patterns.job import Job
from jat_graph.attention.softmax import wide_attention
from jat_graph.masks import TokenMask
from jat_graph.patterns.rows import pattern_rows

# Numbers of the largest mask: 1 GiB as floats.
LARGEST_MASK = 2**28


def unsupported(job: Job) -> list[str]:
    """Say why this backend cannot run.

    Args:
        job: What it is given.

    Returns:
        One phrase a reason; empty if it can.
    """
    length = job.query.size(2)
    if length**2 <= LARGEST_MASK:
        return []
    return [f"a mask of {length}×{length} is too large; use 'blocked'"]


def run(job: Job) -> Tensor:  # [B, H, L, Dv]
    """Return attention under a pattern."""
    mask, length, device = job.mask, job.query.size(2), job.query.device
    allowed = pattern_rows(
        job.pattern,
        valid=mask.valid,
        num_queries=length,
        num_keys=length,
        heads=job.query.size(1),
        device=device,
    )
    rest = TokenMask(causal=mask.causal, pairs=mask.pairs).allowed(length, device)
    if rest is not None:
        allowed = allowed & rest
    if mask.bias is not None:
        allowed = mask.bias.to(job.query.dtype).masked_fill(~allowed, -torch.inf)
    return wide_attention(job.query, job.key, job.value, allowed, job.dropout_p, False, job.scale)
