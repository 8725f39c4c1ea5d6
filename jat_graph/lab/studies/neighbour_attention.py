"""Self-attention of small models from scratch whose heads are kin of jump heads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.attention.strengths import JumpStrength
from jat_graph.hf.filters import FilterConfig, filter_heads
from jat_graph.hf.triplets import TripletConfig
from jat_graph.nn.self_attention import SelfAttention
from jat_graph.nn.triplet_attention import triplet_heads


@dataclass(frozen=True)
class NexusConfig:
    """Heads of Nexus, which has nothing to set."""

    def to_dict(self) -> dict[str, Any]:
        """Say which heads they are."""
        return {"rule": "nexus"}


class FilterSelfAttention(SelfAttention):
    """What :class:`jat_graph.hf.FilterConfig` places in pretrained models, in a layer of ours."""

    def __init__(self, channels: int, heads: int, config: FilterConfig) -> None:
        super().__init__(channels, heads, None, False, True, 0.0)
        config.layer_indices(1)
        self.config = config
        self.filter: JumpStrength | None = None
        if config.rule == "gfsa":
            self.filter = JumpStrength(torch.nn.Parameter(torch.zeros(3, heads)))

    def _mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = self.project(x, x)
        read = partial(F.scaled_dot_product_attention, query, key, attn_mask=_visible(mask))
        return filter_heads(read, value, self.config, self.filter() if self.filter else None)


class TripletSelfAttention(SelfAttention):
    """What :class:`jat_graph.hf.TripletConfig` places: the last heads are triplet heads."""

    def __init__(self, channels: int, heads: int, config: TripletConfig) -> None:
        super().__init__(channels, heads, None, False, True, 0.0)
        config.layer_indices(1)
        self.config, self.first = config, config.head_indices(heads)[0]
        width = config.heads * self.head_channels
        self.key2 = (
            torch.nn.Linear(channels, width, bias=False) if config.pairs == "partner" else None
        )

    def _mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        every = torch.stack(self.project(x, x))
        query, key, value = every[:, :, : self.first]
        plain = F.scaled_dot_product_attention(query, key, value, _visible(mask))
        second = None
        if self.key2 is not None:
            second = self.key2(x).unflatten(-1, (self.config.heads, -1)).transpose(1, 2)
        query, key, value = every[:, :, self.first :]
        triplets = triplet_heads(
            query,
            key,
            value,
            second,
            pairs=self.config.pairs,
            mask=mask,
            seed=self.config.seed,
        )
        return torch.cat([plain, triplets], 1)


class NexusSelfAttention(SelfAttention):
    """Attention whose queries and keys are attention's outputs, all by the same projections."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__(channels, heads, None, False, True, 0.0)

    def _mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = self.project(x, x)
        return F.scaled_dot_product_attention(
            self._inner(query, mask), self._inner(key, mask), value, _visible(mask)
        )

    def _inner(self, heads: Tensor, mask: Tensor | None) -> Tensor:  # [B, H, N, D] -> the same
        """What attention of queries, or of keys, to each other reads."""
        tokens = heads.transpose(1, 2).flatten(2)  # [B, N, C]
        return F.scaled_dot_product_attention(*self.project(tokens, tokens), _visible(mask))


def _visible(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask[:, None, None]  # [B, 1, 1, N]
