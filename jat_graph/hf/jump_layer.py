"""Jump heads of pretrained models."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from jat_graph.attention.heads import JumpHeads
from jat_graph.attention.propagation import head_groups
from jat_graph.config import JatConfig
from jat_graph.hf.attention_call import AttentionCall
from jat_graph.hf.kinds import HeadParts, LayerHeads
from jat_graph.hf.modules import AttentionModule
from jat_graph.masks import TokenMask
from jat_graph.patterns import Pattern
from jat_graph.voting.keys import unsupported_selection


@dataclass(frozen=True)
class JumpLayer(LayerHeads):
    """The jump heads of one attention module."""

    config: JatConfig
    jumping: JumpHeads = field(init=False, compare=False, repr=False)  # among themselves

    config_class = JatConfig
    name = "jat"
    word = "jump"

    def __post_init__(self) -> None:
        jumping = JumpHeads.everyone(self.config, len(self.heads))
        object.__setattr__(self, "jumping", jumping)

    @classmethod
    def place(
        cls, modules: list[AttentionModule], config: JatConfig
    ) -> dict[nn.Module, LayerHeads]:
        """Return the jump heads of each module, which have rows of their own in a table."""
        rows = len(config.layer_indices(len(modules)))
        if isinstance(config.threshold, tuple) and len(config.threshold) != rows:
            raise ValueError(
                f"threshold table must have {rows} rows, one for each jump layer, "
                f"got {len(config.threshold)}"
            )
        return super().place(modules, config)

    @classmethod
    def in_module(
        cls, entry: AttentionModule, index: int, row: int, config: JatConfig
    ) -> JumpLayer:
        """Return the jump heads of one module, which must not look ahead if it is causal."""
        heads = config.head_indices(entry.num_heads)
        jump = cls(index, heads, entry.num_heads, config.for_layer(row, heads))
        if entry.is_causal and not jump.is_ordinary:
            reasons = unsupported_selection(config, TokenMask(causal=True))
            if reasons:
                raise ValueError(f"{type(entry.module).__name__} is causal: {'; '.join(reasons)}")
        return jump

    @classmethod
    def pattern(cls, config: JatConfig) -> Pattern | None:
        """Return the pattern of the settings."""
        return config.attention_pattern()

    @property
    def is_ordinary(self) -> bool:
        """Tell whether no head can differ from an ordinary one, whatever its scores."""
        return self.jumping.is_ordinary

    def run(self, call: AttentionCall) -> HeadParts:
        """Return propagated queries and keys, heads of the same hops together."""
        past = call.past(self)
        mask = call.whole_mask(past)
        return head_groups(
            call.query, call.key, self.jumping, mask=mask, scale=call.scale, past=past
        )
