"""Triplet attention, A³: the score of a query is its volume with two keys, not its angle to one.

Source:
    Zhou et al., *Triplet Attention: Rethinking the Similarity in Transformers*, KDD 2021, and its
    released code, from which docs/faithfulness.md says what is different here.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.nn import SequenceSelfAttention


class TripletAttention(SequenceSelfAttention):
    r"""Self-attention whose scores are the volumes that a query and two keys span.

    .. math::
        \mathrm{softmax}_l \left( \mathbf{q}_i \cdot
        (\mathbf{k}_j \times \mathbf{k}^{\prime}_l) / \sqrt{3} \right) \mathbf{v}_l

    Each three features of all heads are a head. The second keys k′ have a projection of their own;
    j is the partner of l: by fifths of the heads, a random token, the next one, the second next,
    its mirror image, its neighbour.

    Args:
        channels, heads, head_channels: As for ``SelfAttention``; heads · head_channels must be a
            multiple of 3.
        seed: What the random partners are drawn from. (default: 0)
    """

    def __init__(
        self, channels: int, heads: int, head_channels: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(channels, heads, head_channels)
        inner_channels = heads * self.head_channels
        if inner_channels % 3 != 0:
            raise ValueError(f"heads · head_channels must be a multiple of 3, got {inner_channels}")
        self.seed, self.key2 = seed, torch.nn.Linear(channels, inner_channels, bias=False)

    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        flat = self.q(x), self.k(x), self.v(x), self.key2(x)
        query, key, value, second = (y.unflatten(-1, (-1, 3)).transpose(1, 2) for y in flat)
        partner = key.take_along_dim(self._partners(x, mask, key.size(1)).unsqueeze(-1), 2)
        # In half precision a cross product of nearly parallel keys would be rounding.
        wide = torch.promote_types(key.dtype, torch.float32)
        crossed = torch.linalg.cross(partner.to(wide), second.to(wide)).to(key.dtype)
        keys = None if mask is None else mask[:, None, None]
        out = F.scaled_dot_product_attention(query, crossed, value, keys, scale=1 / math.sqrt(3))
        return self._split_heads(out.transpose(1, 2).flatten(2))

    def _partners(self, x: Tensor, mask: Tensor | None, heads: int) -> Tensor:  # [B, heads, L]
        batch, length, _ = x.shape
        mask = x.new_ones(batch, length, dtype=torch.bool) if mask is None else mask
        count, rank = mask.sum(-1, keepdim=True), torch.arange(length, device=x.device)
        # A number for each rank, on the CPU; the first n give the random order of n tokens.
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.rand(length, dtype=torch.float64, generator=generator, device="cpu")
        shuffled = drawn.to(x.device).where(mask, torch.inf).argsort(dim=-1)
        total = count.clamp(min=1)
        after = (rank + 1) % total, (rank + 2) % total
        kinds = (shuffled, *after, count - 1 - rank, rank + 1 - 2 * (rank % 2))
        # Itself where there is padding.
        found = [torch.where(mask & (kind < count), kind, rank) for kind in kinds]
        kind = torch.arange(heads, device=x.device) // max(heads // 5, 1)
        return torch.stack(found, dim=1)[:, kind.clamp(max=4)]
