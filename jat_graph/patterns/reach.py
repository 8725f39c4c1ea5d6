"""How far information travels: whether a few steps along a pattern connect every pair."""

from __future__ import annotations

import torch

from jat_graph.patterns.base import Pattern, check_count
from jat_graph.patterns.rows import pattern_rows


def reaches_all(pattern: Pattern, length: int, steps: int) -> bool:
    """Tell whether every token reaches all that it may in so many steps along the pattern.

    A step goes from a query to a key that one of the heads allows, or stays, as a residual
    connection does. In a pattern that never looks ahead a token may reach the earlier ones, else
    all.

    Args:
        pattern: The pattern; its heads share the work.
        length: Number of tokens.
        steps: Number of steps.

    Returns:
        Whether no pair is left out.

    Raises:
        ValueError: If a number is below 1.

    Reference:
        The criterion of Child et al. 2019, section 4.2, for factorised attention.
    """
    check_count("length", length)
    check_count("steps", steps)
    device = torch.device("cpu")
    rows = pattern_rows(
        pattern,
        valid=None,
        num_queries=length,
        num_keys=length,
        heads=pattern.period,
        device=device,
    )
    edges = rows.any(0).any(0)
    wanted = torch.ones_like(edges) if bool(edges.triu(1).any()) else torch.ones_like(edges).tril()
    edges = (edges | torch.eye(length, dtype=torch.bool, device=device)).float()
    reached = edges
    for _ in range(steps - 1):
        reached = (reached @ edges).clamp(max=1)
    return bool((reached.bool() | ~wanted).all())
