"""Self-attention of small models from scratch whose heads are filter heads."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.attention.filters import filter_heads
from jat_graph.filter_config import FilterConfig
from jat_graph.hf.jump_layer import JumpStrength
from jat_graph.nn.self_attention import SelfAttention


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
        attn_mask = None if mask is None else mask[:, None, None]
        read = partial(F.scaled_dot_product_attention, query, key, attn_mask=attn_mask)
        return filter_heads(read, value, self.config, self.filter() if self.filter else None)
