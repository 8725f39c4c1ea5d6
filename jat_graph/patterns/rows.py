"""A pattern as a tensor of pairs, for short inputs and for rows with a cache."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.patterns.base import Pattern


def pattern_rows(
    pattern: Pattern,
    *,
    valid: Tensor | None,
    num_queries: int,
    num_keys: int,
    heads: int,
    device: torch.device,
) -> Tensor:
    """Return which keys the last queries of a sequence may see.

    Args:
        pattern: The pattern.
        valid: Tokens that are not padding, ``[B|1, H|1, num_keys]``, or None if all are valid.
        num_queries: How many of the last tokens are queries.
        num_keys: Number of tokens L.
        heads: Number of heads.
        device: Where to build it.

    Returns:
        True where a pair is allowed; padding sees nothing and is not seen.

    Shapes:
        - **output:** bool ``[B|1, H|1, num_queries, num_keys]``
    """
    if valid is None:
        rank = torch.arange(num_keys, device=device)[None, None]
    else:
        rank = (valid.long().cumsum(-1) - 1).clamp(min=0)  # [B|1, H|1, L]
    batch = torch.arange(rank.size(0), device=device)[:, None, None, None]
    shared = heads if pattern.period > 1 else 1
    head = torch.arange(shared, device=device)[:, None, None]
    query = rank[..., num_keys - num_queries :].unsqueeze(-1)
    rows = pattern.mask_mod(batch, head, query, rank.unsqueeze(-2))
    if valid is not None:
        seen = valid[..., num_keys - num_queries :].unsqueeze(-1) & valid.unsqueeze(-2)
        rows = rows & seen
    return rows.expand(torch.broadcast_shapes(rows.shape, (1, 1, num_queries, num_keys)))
