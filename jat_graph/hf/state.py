"""What an attached model remembers for the attention function that transformers calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from jat_graph.hf.inputs import AttentionInputs
from jat_graph.hf.kinds import LayerHeads
from jat_graph.patterns.base import Pattern

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedConfig

NAME = "jat"
# What folders name: transformers quotes it where nobody has imported us, and cannot load them.
SAVED_NAME = "jat (import jat_graph.hf first)"
NAMES = (NAME, SAVED_NAME, "triplet")  # folders of before hold the last one
STATE_ATTRIBUTE = "_jat_layer"
ROOT_ATTRIBUTE = "_jat_attachment"  # of the model that got the heads
GRAPHS = "jat_graphs"  # what layers hand on to their attention inside jat_graph.using_graphs


@dataclass
class Attachment:
    """What all attention modules of one attached model share: no parameters, no global tables."""

    # The attention that each of the model's own configurations had before.
    implementations: list[tuple[PreTrainedConfig, str | None]] = field(default_factory=list)
    configs: dict[type[LayerHeads], Any] = field(default_factory=dict)  # as attach got them
    pattern: Pattern | None = None  # of self-attention
    # Whether all layers give probabilities: one without would shift the others.
    on_features: bool = True
    hooks: list[RemovableHandle] = field(default_factory=list)
    token_hooks: list[RemovableHandle] = field(default_factory=list)  # those of excluded tokens
    by_name: bool = False  # one module alone, that no function of ours has seen the model of
    enabled: bool = True  # but inside jat_graph.disabled
    graphs: Any = None  # from outside, inside jat_graph.using_graphs
    graphs_thread: int | None = None  # that is inside it
    output_attentions: bool = False  # whether the forward in progress asked for them
    # Takes heads and calls inside jat_graph.hf.capture_scores.
    recorder: Callable[[tuple[LayerHeads, ...], AttentionInputs], None] | None = None

    def note_kinds(self) -> None:
        """Note where self-attention reads its scores, and what it gives, with these kinds."""
        patterns = (kind.pattern(config) for kind, config in self.configs.items())
        self.pattern = next((pattern for pattern in patterns if pattern is not None), None)
        self.on_features = all(kind.on_features for kind in self.configs)

    def hand_graphs(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Give a layer graphs from outside: an argument, which gradient checkpointing keeps."""
        return args, {**kwargs, GRAPHS: self.graphs}


@dataclass
class LayerState:
    """What one attention module of an attached model carries."""

    attachment: Attachment  # shared with the others
    takes_heads: bool  # whether it is self-attention that can have heads of ours
    heads: tuple[LayerHeads, ...] = ()  # those that it has, each kind's apart


def layer_state(module: nn.Module) -> LayerState | None:
    """Return what :func:`jat_graph.attach` left on an attention module."""
    return getattr(module, STATE_ATTRIBUTE, None)
