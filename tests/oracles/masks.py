"""What a mask means: one boolean matrix for the graph, one for the softmax, and finite biases."""

from typing import NamedTuple

import torch
from torch import Tensor


class ReferenceMask(NamedTuple):
    """A mask taken apart.

    The two matrices differ only in the rows of padding tokens. In the graph a padding token is a
    node without edges; in the softmax its row still reads the valid keys, as in SDPA.

    Shapes: pairs bool ``[B, H, L, L]``, the M of the graph; visible bool ``[B, H, L, L]``, what
    the softmax may read; bias ``[B, H, L, L]``, finite, added to the final scores only.
    """

    pairs: Tensor
    visible: Tensor
    bias: Tensor


def reference_mask(
    query: Tensor, attention_mask: Tensor | None = None, is_causal: bool = False
) -> ReferenceMask:
    """Return M, the softmax's mask and the finite biases of an attention mask.

    An additive entry at or below half of its dtype's lowest number is masked; every other one is a
    bias. A token that the mask hides from every query is padding. ``is_causal`` combines with the
    mask.

    Shapes: query ``[B, H, L, D]``; attention_mask ``[B, L]`` or ``[B|1, H|1, L|1, L]``.
    Reference: Causal order: JAT paper, section 3.2.1. Padding and the rest: this library's one
    rule.
    """
    batch, heads, length, _ = query.shape
    shape = (batch, heads, length, length)
    visible = torch.ones(shape, dtype=torch.bool, device=query.device)
    bias = query.new_zeros(shape)
    if attention_mask is not None:
        allowed, bias = _split(attention_mask, query.dtype)
        if attention_mask.dim() == 2:
            allowed, bias = allowed[:, None, None, :], bias[:, None, None, :]
        visible, bias = allowed.expand(shape), bias.expand(shape)
    valid = visible.any(dim=-2)  # [B, H, L]
    if is_causal:
        visible = visible.tril()
    return ReferenceMask(visible & valid[..., :, None], visible, bias)


def _split(mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return which entries attend, and the finite biases."""
    if mask.dtype == torch.bool:
        return mask, torch.zeros_like(mask, dtype=dtype)
    allowed = mask > torch.finfo(mask.dtype).min / 2
    return allowed, mask.masked_fill(~allowed, 0.0).to(dtype)
