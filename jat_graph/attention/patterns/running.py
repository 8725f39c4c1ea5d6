"""Attention under a pattern, behind the checks."""

from __future__ import annotations

from torch import Tensor

from jat_graph.attention.patterns.choice import BACKENDS, choose
from jat_graph.attention.patterns.job import Job
from jat_graph.masks import TokenMask
from jat_graph.patterns.base import Pattern
from jat_graph.patterns.rows import pattern_rows as pattern_rows


def run_pattern(
    query: Tensor,  # [B, H, L, F]
    key: Tensor,  # [B, H, L, F]
    value: Tensor,  # [B, H, L, Dv]
    *,
    pattern: Pattern,
    mask: TokenMask,
    dropout_p: float,
    scale: float,
    backend: str = "auto",
) -> Tensor:  # [B, H, L, Dv]
    """Return attention under a pattern and a mask."""
    pattern.check_size(query.size(0), query.size(2))
    job = Job(query, key, value, pattern, mask, dropout_p, scale)
    output: Tensor = BACKENDS[choose(backend, job).backend].run(job)
    return output
