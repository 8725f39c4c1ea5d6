"""Filter heads, GFSA's and those of attention diffusion: settings, formulas, pretrained models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jat_graph.attention.heads import JumpStrength
from jat_graph.attention.propagation import strength_is_zero
from jat_graph.checks.numbers import check_choice, check_integer, check_number
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.kinds import Builders, HeadOutput, HeadParts, LayerConfig, LayerHeads

RULES = ("gfsa", "ppr")


@dataclass(frozen=True)
class FilterConfig(LayerConfig):
    """Settings of filter heads; :func:`jat_graph.attach` takes them in place of a ``JatConfig``.

    Such a head reads its values by a polynomial of its own attention probabilities P, and leaves
    queries and keys as they are. All heads of a layer are filter heads.

    Args:
        rule: ``"gfsa"``: w₀ I + w₁ P + w_K [P + (K − 1)(P² − P)], the bracket standing for P to the
            power of K; each head learns its three weights, from 0, 1 and 0, the base.
            ``"ppr"``: Z ← (1 − α) P Z + α V, K times, from Z = V. (default: ``"gfsa"``)
        order: K, at least 1. (default: 3)
        restart: α of ``"ppr"``, from 0 to 1. (default: None, 0.15 for ``"ppr"``)
        layers: Indices from 0. (default: None, all)

    Raises:
        ValueError: If a field does not fit.

    Reference:
        Choi et al., *Graph Convolutions Enrich the Self-Attention in Transformers!*, NeurIPS 2024,
        and Wang et al., *Multi-hop Attention Graph Neural Networks*, IJCAI 2021 (MAGNA).
    """

    rule: str = "gfsa"
    order: int = 3
    restart: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("rule", self.rule, RULES)
        check_integer("order", self.order, least=1)
        if self.rule == "gfsa" and self.restart is not None:
            raise ValueError(f"restart must be None for gfsa, got {self.restart!r}")
        if self.rule == "ppr":
            restart = 0.15 if self.restart is None else self.restart
            if check_number("restart", restart, least=0.0) > 1:
                raise ValueError(f"restart must be at most 1, got {restart}")
            object.__setattr__(self, "restart", restart)


def filter_heads(
    read: Callable[[Tensor], Tensor],  # takes values to what one reading makes of them, P x
    value: Tensor,  # [B, H, L, Dv]
    config: FilterConfig,
    theta: Tensor | None,  # of "gfsa": w₀, w₁ − 1 and w_K, [3, H]
) -> Tensor:  # [B, H, L, Dv]
    """Return what filter heads read, P never formed, dropped out in each reading as MAGNA does."""
    start = _wide(value)
    if theta is None:
        assert config.restart is not None
        state = value
        for _ in range(config.order):
            near = _wide(read(state))
            state = ((1 - config.restart) * near + config.restart * start).to(value.dtype)
        return state
    first = read(value)
    once, twice = _wide(first), _wide(read(first))
    itself, more, high = theta.to(start.dtype)[:, :, None, None]
    far = once + (config.order - 1) * (twice - once)
    result: Tensor = once + more * once + itself * start + high * far
    return result.to(first.dtype)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


@dataclass(frozen=True)
class FilterLayer(LayerHeads):
    """The filter heads of one attention module."""

    config: FilterConfig

    config_class = FilterConfig
    name = "attention_filter"
    word = "filter"
    on_features = False

    @classmethod
    def learns(cls, config: FilterConfig) -> bool:
        """Tell whether each head has weights of its own."""
        return config.rule == "gfsa"

    def parameters(self, module: nn.Module, conv: Any = None) -> Builders:
        """Return the weights, less those of the base, if there are any."""
        like = next(module.parameters())
        dtype = like.dtype if like.is_floating_point() else torch.float32

        def weights() -> nn.Module:
            zeros = torch.zeros(3, len(self.heads), device=like.device, dtype=dtype)
            return JumpStrength(nn.Parameter(zeros))

        return {"filter": weights} if self.learns(self.config) else {}

    def is_identity(self, module: nn.Module) -> bool:
        """Tell whether the heads are ordinary ones: P alone, and nothing to be learned."""
        theta, plain = self._theta(module), self.config.order == 1 and self.config.restart == 0
        return plain if theta is None else strength_is_zero(theta)

    def _theta(self, module: Any) -> Tensor | None:
        return module.filter() if self.learns(self.config) else None

    def describe(self, module: nn.Module) -> str:
        """Return the rule, and how far the weights are from the base's."""
        theta = self._theta(module)
        if theta is None:
            return f"ppr, {self.config.order} steps, restart {self.config.restart:g}"
        moved = theta.detach().abs().amax().item()
        return f"gfsa, order {self.config.order}, at most {moved:.2g} from the base"

    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return what the heads read: some attention calls, and nothing L×L."""
        inputs.check_whole("filter heads")
        mask, causal = inputs.sdpa_mask(None)

        def read(x: Tensor) -> Tensor:
            x, dropout, scale = x.to(inputs.value.dtype), inputs.dropout, inputs.scale
            return F.scaled_dot_product_attention(
                inputs.query, inputs.key, x, mask, dropout, causal, scale=scale
            )

        output = filter_heads(read, inputs.value, self.config, self._theta(inputs.module))
        return [HeadOutput(self.heads, output)]
