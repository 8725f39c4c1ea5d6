"""Filter heads, GFSA's and those of attention diffusion, in pretrained models: for comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jat_graph.attention.filters import filter_heads
from jat_graph.attention.propagation import strength_is_zero
from jat_graph.filter_config import FilterConfig
from jat_graph.hf.attention_call import AttentionCall
from jat_graph.hf.jump_layer import JumpStrength
from jat_graph.hf.kinds import HeadParts, LayerHeads, Reading
from jat_graph.hf.modules import AttentionModule


@dataclass(frozen=True)
class FilterLayer(LayerHeads):
    """The filter heads of one attention module."""

    config: FilterConfig

    config_class = FilterConfig
    name = "attention_filter"
    word = "filter"
    on_features = False

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: FilterConfig
    ) -> FilterLayer:
        """Return the filter heads of one module; what its mask hides, no power of P sees."""
        return cls(index, config.head_indices(entry.num_heads), entry.num_heads, config)

    @classmethod
    def learns(cls, config: FilterConfig) -> bool:
        """Tell whether each head has weights of its own."""
        return config.rule == "gfsa"

    def parameters(self, module: nn.Module) -> Mapping[str, Callable[[], nn.Module]]:
        """Return the weights, less those of the base, if there are any."""
        return {"filter": lambda: self._weights(module)} if self.learns(self.config) else {}

    def _weights(self, module: nn.Module) -> JumpStrength:
        like = next(module.parameters())
        dtype = like.dtype if like.is_floating_point() else torch.float32
        theta = torch.zeros(3, len(self.heads), device=like.device, dtype=dtype)
        return JumpStrength(nn.Parameter(theta))

    def at_rest(self, module: nn.Module) -> bool:
        """Tell whether the heads are ordinary ones: P alone, and nothing to be learned."""
        theta = self._theta(module)
        if theta is None:
            return self.config.order == 1 and self.config.restart == 0
        return strength_is_zero(theta)

    def _theta(self, module: nn.Module) -> Tensor | None:
        return module.filter() if self.learns(self.config) else None  # type: ignore[operator]

    def way(self, module: nn.Module) -> str:
        """Return the rule, and how far the weights are from the base's."""
        theta = self._theta(module)
        if theta is None:
            return f"ppr, {self.config.order} steps, restart {self.config.restart:g}"
        moved = theta.detach().abs().amax().item()
        return f"gfsa, order {self.config.order}, at most {moved:.2g} from the base"

    def run(self, call: AttentionCall) -> HeadParts:
        """Return the heads as readings of their own: some attention calls, and nothing L×L."""
        if not call.is_whole:
            raise ValueError(
                "filter heads need the queries of all tokens: pass use_cache=False "
                f"(got {call.sizes[0]} queries for {call.sizes[1]} keys)"
            )
        attn_mask, is_causal = call.sdpa_mask(None)
        read = partial(
            F.scaled_dot_product_attention,
            call.query,
            call.key,
            attn_mask=attn_mask,
            dropout_p=call.dropout,
            is_causal=is_causal,
            scale=call.scale,
        )
        output = filter_heads(
            lambda x: read(x.to(call.value.dtype)),
            call.value,
            self.config,
            self._theta(call.module),
        )
        return [Reading(self.heads, output)]
