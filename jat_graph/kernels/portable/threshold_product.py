"""Multiply by a sum of threshold graphs in plain torch: running sums over blocks of keys."""

from __future__ import annotations

import torch
from torch import Tensor

# Elements of the running sums that are held at a time.
BLOCK = 2**22


def add_joined(
    x: Tensor,  # Features [G, L, D]
    order: Tensor,  # Tokens by falling score with each key, [G, U, L]
    reach: Tensor,  # How far the token at each place joins, [G, U, L]
) -> Tensor:  # [G, L, D]
    """Return y_i = Σ_j Σ_k 1[j joins (i, k)] x_k."""
    total = torch.zeros_like(x)
    step = max(1, BLOCK // max(1, x.numel()))
    for start in range(0, order.size(1), step):
        keys = slice(start, start + step)
        total += _add_keys(x, order[:, keys], reach[:, keys])
    return total


def _add_keys(x: Tensor, order: Tensor, reach: Tensor) -> Tensor:
    graphs, num_keys, length = order.shape
    width = x.size(-1)
    # A place without a token is beyond everybody's reach.
    index = order.clamp(min=0).long().unsqueeze(-1).expand(-1, -1, -1, width)
    ranked = x.unsqueeze(1).expand(-1, num_keys, -1, -1).gather(2, index)
    zero = ranked.new_zeros(graphs, num_keys, 1, width)
    # Each side is summed from its strongest end, so that nothing is ever subtracted.
    running = torch.cat([zero, ranked.cumsum(2), ranked.flip(2).cumsum(2)], dim=2)
    end = torch.where(reach < 0, length - reach, reach).long()  # one zero for both sides
    sums = running.gather(2, end.unsqueeze(-1).expand(-1, -1, -1, width))
    sums.masked_fill_((reach == 0).unsqueeze(-1), 0.0)
    return torch.zeros_like(ranked).scatter_add_(2, index, sums).sum(1)
