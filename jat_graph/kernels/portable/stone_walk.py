"""Walk over stones in plain torch: by the links of all tokens, most of which may be 0."""

from __future__ import annotations

import torch
from torch import Tensor


def share(
    columns: Tensor,  # Standard scores with each stone, [G, U, L]
    threshold: Tensor,  # [G], at least 0
    sides: int,
    hard: bool,
    x: Tensor,  # Features [G, L, D]
    total: Tensor,  # [G, L, D], to which Σ_j b_ij mean_j is added
    degree: Tensor,  # [G, L], to which Σ_j b_ij is added
) -> Tensor:  # mean_j = Σ_i b_ij x_i / Σ_i b_ij, [G, sides · U, D]
    """Let every token take the means of its stones."""
    links = _links(columns, threshold, sides, hard)
    means = _means(links, x)
    total.baddbmm_(links.mT, means)
    degree += links.sum(1)
    return means


def give(
    columns: Tensor,  # [G, U, L]
    threshold: Tensor,  # [G]
    sides: int,
    hard: bool,
    x: Tensor,  # [G, L, D]
    means: Tensor,  # [G, sides · U, D]
    grad: Tensor,  # of the total, [G, L, D]
    to_degree: Tensor,  # [G, L]
    to_x: Tensor,  # [G, L, D], to which the gradient is added
) -> Tensor:  # of the columns, [G, U, L]
    """Return the gradient of the same walk."""
    links = _links(columns, threshold, sides, hard)
    shared = _means(links, grad)
    to_x.baddbmm_(links.mT, shared)
    # What a stone's sum gets more of, it shares out less of.
    to_links = (means @ grad.mT).baddbmm_(shared, x.mT)
    to_links += to_degree.unsqueeze(1) - (shared * means).sum(-1, keepdim=True)
    to_links.masked_fill_(links == 0, 0.0)
    high, *low = to_links.chunk(sides, dim=1)
    return high - low[0] if low else high


def _links(columns: Tensor, threshold: Tensor, sides: int, hard: bool) -> Tensor:
    least = threshold[:, None, None]
    links = torch.cat([columns - least, -columns - least][:sides], dim=1)
    links.masked_fill_(~(links > 0), 0.0)  # NaN never links
    return links.sign_() if hard else links


def _means(links: Tensor, x: Tensor) -> Tensor:  # [G, M, L], [G, L, D]; [G, M, D]
    sizes = links.sum(-1, keepdim=True)
    return (links @ x).div_(sizes.masked_fill_(sizes == 0, 1.0))
