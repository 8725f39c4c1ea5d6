"""Filter heads, GFSA's and those of attention diffusion, and triplet heads, to compare with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jat_graph.attention.heads import HeadOutput, HeadParts, JumpStrength
from jat_graph.attention.propagation import strength_is_zero
from jat_graph.checks.numbers import check_integer
from jat_graph.config_fields import integer, number, one_of
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.modules import Builders, LayerConfig, LayerHeads


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

    rule: str = one_of("gfsa", "ppr")
    order: int = integer(3, least=1)
    restart: float | None = number(None, least=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rule == "gfsa" and self.restart is not None:
            raise ValueError(f"restart must be None for gfsa, got {self.restart!r}")
        if self.rule == "ppr":
            object.__setattr__(self, "restart", 0.15 if self.restart is None else self.restart)
        if self.restart is not None and self.restart > 1:
            raise ValueError(f"restart must be at most 1, got {self.restart}")


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
        if not self.learns(self.config):
            return {}
        return {"filter": lambda: JumpStrength(nn.Parameter(torch.zeros(3, len(self.heads))))}

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


@dataclass(frozen=True)
class TripletConfig(LayerConfig):
    """Settings of triplet heads; :func:`jat_graph.attach` takes them in place of a ``JatConfig``.

    The defaults are those of the released code; :class:`jat_graph.nn.TripletAttention` says more.

    Args:
        heads: How many heads become triplet heads, the last ones; a multiple of 3. (default: 3)
        layers: Indices from 0. (default: None, all)
        pairs: How keys come together: ``"partner"``, with second keys from a linear layer ``key2``;
            ``"sum"`` or ``"max"`` over all tokens, without. (default: ``"partner"``)
        seed: What random partners and the new weights are drawn from. (default: 0)

    Raises:
        ValueError: If a field does not fit.

    Reference:
        Zhou et al., *Triplet Attention: Rethinking the Similarity in Transformers*, KDD 2021.
    """

    heads: int = integer(3, least=3)
    pairs: str = one_of("partner", "sum", "max")
    seed: int = integer(0, least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads % 3 != 0:
            raise ValueError(f"heads must be a multiple of 3, got {self.heads}")

    def head_indices(self, num_heads: int) -> tuple[int, ...]:
        """Return the triplet heads of a layer, its last ones."""
        check_integer("heads", self.heads, least=3, below=num_heads + 1)
        return tuple(range(num_heads - self.heads, num_heads))


@dataclass(frozen=True)
class TripletLayer(LayerHeads):
    """The triplet heads of one attention module, and their second keys."""

    config: TripletConfig

    config_class = TripletConfig
    name = "triplet"
    word = "triplet"
    on_features = False
    looks_ahead = True

    @classmethod
    def learns(cls, config: TripletConfig) -> bool:
        """Tell whether keys come together with partners."""
        return config.pairs == "partner"

    def parameters(self, module: nn.Module, conv: Any = None) -> Builders:
        """Return the layer of second keys, drawn as the model drew its own, if there is one."""
        settings: Any = module.config

        def second_keys() -> nn.Module:
            width = settings.hidden_size
            size = width // self.num_heads * len(self.heads)
            std = getattr(settings, "initializer_range", 0.02)
            # On "meta" nothing is drawn, so that the global state stays as it is.
            key2 = nn.Linear(width, size, device="meta", dtype=torch.float32).to_empty(device="cpu")
            generator = torch.Generator("cpu").manual_seed(self.config.seed + self.index)
            with torch.no_grad():
                key2.weight.normal_(std=std, generator=generator)
                key2.bias.zero_()
            return key2

        return {"key2": second_keys} if self.learns(self.config) else {}

    def describe(self, module: nn.Module) -> str:
        """Return how their keys come together."""
        return f"pairs {self.config.pairs}"

    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return what the heads read, three features of all of them at a time."""
        from jat_graph.nn.triplet_attention import triplet_heads  # PyG takes seconds to load

        second_key = None
        if self.config.pairs == "partner":
            flat = inputs.module.key2(inputs.hidden)
            second_key = flat.unflatten(-1, (len(self.heads), -1)).transpose(1, 2)  # [B, H, L, D]
        name, mask = type(inputs.module).__name__, inputs.token_mask()
        features = (inputs.query, inputs.key, inputs.value)
        if mask.causal or mask.pairs is not None or mask.bias is not None:
            raise ValueError(
                f"{name} must have a mask of padding only for triplet heads, got one of pairs"
            )
        if not inputs.query.shape == inputs.key.shape == inputs.value.shape:
            shapes = [list(x.shape) for x in features]
            raise ValueError(f"triplet heads of {name} need tensors of one shape, got {shapes}")
        output = triplet_heads(
            *features,
            second_key,
            pairs=self.config.pairs,
            seed=self.config.seed + self.index,
            mask=None if mask.valid is None else mask.valid[:, 0].expand(len(inputs.query), -1),
            dropout_p=inputs.dropout,
        )
        return [HeadOutput(tuple(range(len(self.heads))), output)]
