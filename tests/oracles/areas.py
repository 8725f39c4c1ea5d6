"""Area attention: every area is a list of positions, and every feature of it a loop over them."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.oracles.jump import masked_softmax


def reference_areas(length: int, *, max_width: int) -> list[range]:
    """List all areas of a sequence, by their width, as the positions of their tokens.

    Reference: Li et al., *Area Attention*, ICML 2019, section 3.
    """
    return [
        range(left, left + width)
        for width in range(1, max_width + 1)
        for left in range(length - width + 1)
    ]


def reference_area_attention(
    query: Tensor, key: Tensor, value: Tensor, allowed: Tensor, *, max_width: int, scale: float
) -> Tensor:
    """Return attention over areas whose tokens may all be read; 0 where there is none.

    Shapes: query, output ``[B, H, Lq, D]``; key, value ``[B, H, L, D]``; allowed bool ``[B, H, Lq,
    L]``. Reference: Li et al. (2019), Eq. 1 to 3; Tensor2Tensor, ``dot_product_area_attention``.
    """
    areas = [list(area) for area in reference_areas(key.shape[-2], max_width=max_width)]
    area_key = torch.stack([key[..., area, :].mean(-2) for area in areas], dim=-2)
    area_value = torch.stack([value[..., area, :].sum(-2) for area in areas], dim=-2)
    readable = torch.stack([allowed[..., area].all(-1) for area in areas], dim=-1)
    weights = masked_softmax(query @ area_key.transpose(-1, -2) * scale, readable)
    return weights @ area_value
