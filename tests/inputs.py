"""Random heads whose graphs are neither empty nor complete, and random padding."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tests.oracles import reference_mask


class RandomHeads(NamedTuple):
    """Random heads ``[B, H, L, D]``, and the share of their allowed pairs that a key joins."""

    query: Tensor
    key: Tensor
    value: Tensor
    density: float


def random_heads(
    batch: int = 2,
    heads: int = 2,
    length: int = 16,
    head_dim: int = 8,
    *,
    threshold: float = 6.0,
    density: float = 0.5,
    attention_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> RandomHeads:
    """Return Gaussian heads, scaled so that the wanted share of the allowed pairs is joined.

    Each head of each sequence is scaled on its own, for a vote of all keys at ``threshold``. The
    threshold then lies midway between the products of two pairs, not on one. Very short sequences
    have few pairs, so look at the ``density`` that comes back.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (3, batch, heads, length, head_dim)
    query, key, value = torch.randn(shape, generator=generator, dtype=torch.float64).unbind()
    mask = None if attention_mask is None else attention_mask.cpu()
    pairs = reference_mask(query, mask, is_causal).pairs
    scale = head_dim**-0.5 if scale is None else scale
    critical = critical_products(query @ key.mT * scale, pairs)  # [B, H, L, L]
    cuts = [_cut(head, density) for head in critical.flatten(0, 1)]
    # Products grow with the fourth power of a common factor of q and k.
    factor = (threshold / critical.new_tensor(cuts).view(batch, heads, 1, 1)) ** 0.25
    query, key = query * factor, key * factor
    query, key, value = (t.to(dtype).to(device) for t in (query, key, value))
    final = critical_products(query.cpu().double() @ key.cpu().double().mT * scale, pairs)
    candidates = final[~final.isnan()]
    reached = (candidates > threshold).double().mean().item() if len(candidates) else 0.0
    return RandomHeads(query, key, value, reached)


def random_padding_mask(
    batch: int,
    length: int,
    *,
    side: str = "right",
    min_valid: int = 1,
    device: str | torch.device = "cpu",
    seed: int = 0,
) -> Tensor:
    """Return a padding mask ``[B, L]``, True where valid; the first row has no padding.

    Padding is on the ``"right"``, on the ``"left"`` or ``"scattered"``.
    """
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(min_valid, max(length, min_valid + 1), (batch,), generator=generator)
    counts[:1] = length
    mask = torch.arange(length) < counts[:, None]  # [B, L]
    if side == "left":
        mask = mask.flip(-1)
    if side == "scattered":
        mask = mask.gather(-1, torch.rand(batch, length, generator=generator).argsort(dim=-1))
    return mask.to(device)


def critical_products(
    scores: Tensor,
    pairs: Tensor,
    voters: Tensor | None = None,
    norm: Tensor | None = None,
    same_sign_only: bool = False,
) -> Tensor:
    """Return for each pair of tokens the largest product that may vote; NaN where none is allowed.

    Shapes: scores, pairs, output ``[B, H, L, L]``; voters, norm ``[B, H, L]``.
    """
    critical = torch.full_like(scores, -math.inf)
    for j in range(scores.shape[-1]):
        left, right = scores[..., :, None, j], scores[..., None, :, j]
        seen = pairs[..., :, None, j] & pairs[..., None, :, j]
        product = left * right
        if norm is not None:
            product = product / norm[..., j, None, None]
        if voters is not None:
            seen = seen & voters[..., j, None, None]
        if same_sign_only:
            seen = seen & ~((left < 0) & (right < 0))
        critical = torch.maximum(critical, product.masked_fill(~seen, -math.inf))
    loops = torch.eye(scores.shape[-1], dtype=torch.bool)
    return critical.masked_fill(~pairs | loops, math.nan)


def _cut(critical: Tensor, density: float) -> float:
    """Return a number between two neighbouring products of one head; 1 if no key can join any."""
    values = sorted(set(critical[~critical.isnan()].tolist()))  # a pair and its mirror count once
    if not values or values[-1] <= 0:
        return 1.0
    position = min(max(round((1 - density) * len(values)), 0), len(values) - 1)
    while values[position] <= 0:
        position += 1
    below = values[position - 1] if position else 0.0
    return math.sqrt(below * values[position]) if below > 0 else values[position] / 2
