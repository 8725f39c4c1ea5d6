"""Jump heads of pretrained models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from jat_graph.adjacency.keys import unsupported_selection
from jat_graph.attention.external_graphs import read_graph
from jat_graph.attention.heads import JumpStrength
from jat_graph.attention.jump_heads import JumpHeads
from jat_graph.attention.propagation import (
    Past,
    head_groups,
    new_past,
    strength_is_zero,
)
from jat_graph.config import JatConfig, PairGraph
from jat_graph.config_fields import LEARNED
from jat_graph.hf.describing import way_of_jumping
from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.kinds import HeadParts, LayerHeads
from jat_graph.hf.modules import AttentionModule, head_size
from jat_graph.masks.tokens import TokenMask
from jat_graph.patterns.base import Pattern

if TYPE_CHECKING:
    from jat_graph.nn.head_layers import ConvFactory


@dataclass(frozen=True)
class JumpLayer(LayerHeads):
    """The jump heads of one attention module."""

    config: JatConfig
    conv: ConvFactory | None = field(default=None, compare=False, repr=False)  # as attach got it
    jumping: JumpHeads = field(init=False, compare=False, repr=False)  # among themselves
    fixed: bool = field(init=False, compare=False, repr=False)  # whether some jump at any rate
    learning: bool = field(init=False, compare=False, repr=False)  # whether a strength is learned

    config_class = JatConfig
    name = "jat"
    word = "jump"

    def __post_init__(self) -> None:
        jumping = JumpHeads.everyone(self.config, len(self.heads))
        object.__setattr__(self, "jumping", jumping)
        strengths = {strength for triple in self.config.strengths() for strength in triple}
        fixed = not strengths or any(strengths - {LEARNED})
        object.__setattr__(self, "fixed", fixed)
        object.__setattr__(self, "learning", LEARNED in strengths)

    @classmethod
    def place(
        cls, modules: list[AttentionModule], config: JatConfig
    ) -> dict[nn.Module, LayerHeads]:
        """Return the jump heads of each module, which have rows of their own in a table."""
        rows = len(config.layer_indices(len(modules)))
        if isinstance(config.graph.threshold, tuple) and len(config.graph.threshold) != rows:
            raise ValueError(
                f"threshold table must have {rows} rows, one for each jump layer, "
                f"got {len(config.graph.threshold)}"
            )
        return super().place(modules, config)

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: JatConfig
    ) -> JumpLayer:
        """Return the jump heads of one module, which must not look ahead if it is causal."""
        heads = config.head_indices(entry.num_heads)
        jump = cls(index, heads, entry.num_heads, config.for_layer(row, heads))
        if entry.is_causal and not jump.jumping.is_identity:
            reasons = unsupported_selection(config, TokenMask(causal=True))
            if config.conv is not None and config.graph.kind == "stones":
                reasons = [*reasons, "a layer on stones looks ahead; use graph='pairs'"]
            if reasons:
                raise ValueError(f"{type(entry.module).__name__} is causal: {'; '.join(reasons)}")
        return jump

    @classmethod
    def pattern(cls, config: JatConfig) -> Pattern | None:
        """Return the pattern of the settings."""
        return config.attention_pattern()

    @classmethod
    def needs_rows(cls, config: JatConfig) -> bool:
        """Tell whether thresholds are a table over layers."""
        return isinstance(config.graph.threshold, tuple)

    @classmethod
    def learns(cls, config: JatConfig) -> bool:
        """Tell whether a strength is learned, or a layer of PyG may learn."""
        return config.conv is not None or any(LEARNED in triple for triple in config.strengths())

    def parameters(self, module: nn.Module) -> Mapping[str, Callable[[], nn.Module]]:
        """Return the strengths, if they are learned, and layers of PyG."""
        made: dict[str, Callable[[], nn.Module]] = {}
        if self.learning:
            made["strength"] = lambda: self._strength(module)
        if self.config.conv is not None:
            made["jump_conv"] = lambda: self._layers(module)
        return made

    def _layers(self, module: nn.Module) -> nn.Module:
        """Draw the layers on the CPU, from a seed of their own, in the dtype of the module."""
        from jat_graph.nn.head_layers import build_layers  # PyG takes seconds to load

        like = next(module.parameters())
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(self.config.seed + self.index)
            made = build_layers(self.config, self.conv, head_size(module))
        return made.to(like.device, like.dtype if like.is_floating_point() else None)

    def _strength(self, module: nn.Module) -> JumpStrength:
        """Return strengths of 0 in the dtype of the module, for a shard of both must have one."""
        theta, like = self.jumping.new_strength(), next(module.parameters())
        assert theta is not None
        dtype = like.dtype if like.is_floating_point() else theta.dtype  # quantized weights are not
        return JumpStrength(theta).to(like.device, dtype)

    def is_identity(self, module: nn.Module) -> bool:
        """Tell whether no head can differ from an ordinary one, whatever its scores."""
        if self.fixed:
            return self.jumping.is_identity
        strength = self.learned(module)
        return strength is None or strength_is_zero(strength)

    def learned(self, module: nn.Module) -> Tensor | None:
        """Return the strengths that a module has learned; None if there is nothing to learn."""
        return module.strength() if self.learning else None  # type: ignore[operator]

    def way(self, module: nn.Module) -> str:
        """Return what they go along, and how far."""
        return way_of_jumping(self.config, self.learned(module))

    def new_past(self) -> Past:
        """Return what no tokens leave behind."""
        return new_past(self.config)

    def run(self, inputs: AttentionInputs) -> HeadParts:
        """Return propagated queries and keys, heads of the same hops together."""
        if not inputs.is_whole:
            self._refuse_last_tokens(inputs)
        past, mask = inputs.past_and_mask(self)
        external = inputs.external
        if external is not None:
            external = read_graph(external, inputs.query, mask, self.heads)
        return head_groups(
            inputs.query,
            inputs.key,
            inputs.value,
            self.jumping,
            mask=mask,
            scale=inputs.scale,
            past=past,
            strength=self.learned(inputs.module),
            layers=getattr(inputs.module, "jump_conv", None),
            external=external,
        )

    def _refuse_last_tokens(self, inputs: AttentionInputs) -> None:
        """Refuse to generate with a cache what needs the queries of all tokens."""
        config = self.config
        strong_pairs = config.strength is not None and config.graph.kind == "pairs"
        reasons = {
            "on graphs from outside": inputs.external is not None,
            "with layers of PyG": config.conv is not None,
            "with strengths on pairs": strong_pairs,
            "on pruned pairs": isinstance(config.graph, PairGraph)
            and (config.graph.min_weight > 0 or config.graph.max_neighbors is not None),
        }
        what = next((reason for reason, holds in reasons.items() if holds), None)
        if what is not None:
            raise ValueError(
                f"jump heads {what} need the queries of all tokens: pass use_cache=False "
                f"(got {inputs.sizes[0]} queries for {inputs.sizes[1]} keys)"
            )
