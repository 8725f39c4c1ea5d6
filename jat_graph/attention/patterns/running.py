"""Attention under a pattern, behind the checks."""

from __future__ import annotations

from torch import Tensor

from jat_graph.attention.patterns.choice import BACKENDS, choose
from jat_graph.attention.patterns.job import Job
from jat_graph.masks import TokenMask
from jat_graph.patterns.base import Pattern
from jat_graph.patterns.rows import pattern_rows as pattern_rows


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
    job = Job(query, key, value, pattern, mask, dropout_p, scale)
    output: Tensor = BACKENDS[choose(backend, job).backend].run(job)
    return output
