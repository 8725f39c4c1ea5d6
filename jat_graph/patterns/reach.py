"""How far information travels: whether a few steps along a pattern connect every pair."""

from __future__ import annotations

import torch

from jat_graph.patterns.base import Pattern, check_count


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
    with torch.device("cpu"):  # wherever new tensors go by default
        batch = torch.arange(max(1, pattern.num_sequences))[:, None, None, None]
        head, index = torch.arange(pattern.period)[:, None, None], torch.arange(length)
        rows = pattern.mask_mod(batch, head, index[:, None], index)
        edges = rows.expand(len(batch), len(head), length, length).flatten(0, 1).any(0)
        wanted = torch.ones(length, length, dtype=torch.bool)
        wanted = wanted if bool(edges.triu(1).any()) else wanted.tril()
        step = (edges | torch.eye(length, dtype=torch.bool)).float()
        reached = step
        for _ in range(steps - 1):
            reached = (reached @ step).clamp(max=1)
        return bool((reached.bool() | ~wanted).all())
