"""Checks of the public functions' tensors; workers behind them trust their input."""

from __future__ import annotations

import math

from jat_graph.checks.numbers import check_inside, check_number
from jat_graph.checks.tensors import default_scale


def check_scale(scale: float | None, head_dim: int) -> float:
    """Return the factor of the scores; None means 1/√D."""
    if scale is None:
        return default_scale(head_dim)
    return check_inside("scale", scale, -math.inf, math.inf)


def check_dropout(dropout_p: float) -> None:
    """Refuse a probability of dropout outside [0, 1]."""
    if check_number("dropout_p", dropout_p, least=0.0) > 1:
        raise ValueError(f"dropout_p must be at most 1, got {dropout_p}")
