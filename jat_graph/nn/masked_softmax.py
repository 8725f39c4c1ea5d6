"""Softmax over what may be read."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_softmax(logits: Tensor, allowed: Tensor | None, dim: int) -> Tensor:
    """Return the softmax over the allowed entries; where there is none, zeros and no gradient.

    Args:
        logits: The logits.
        allowed: Bool, broadcastable to ``logits``; None allows all.
        dim: The axis to sum to 1 over.

    Shapes:
        - logits, output: any

    Returns:
        The weights.

    Reference:
        Vaswani et al. (2017), Eq. 1.
    """
    if allowed is None:
        return logits.softmax(dim)
    # A finite fill: a row of infinities would be NaN, and so would its gradient.
    filled = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
    return filled.softmax(dim).masked_fill(~allowed, 0.0)
