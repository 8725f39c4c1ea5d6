"""What an attached model remembers: plain attributes, no parameters, no global tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import nn

from jat_graph.attention.heads import JumpHeads
from jat_graph.config import JatConfig
from jat_graph.hf.notes import note

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedConfig

    from jat_graph.hf.capture import ScoreRecorder
    from jat_graph.patterns import Pattern

STATE_ATTRIBUTE = "_jat_layer"


@dataclass(frozen=True)
class JumpLayer(JumpHeads):
    """A self-attention layer some of whose heads jump.

    Args:
        config: The settings over ``heads``, as :meth:`JatConfig.for_layer` gives them.
        heads: The heads that jump.
        index: Number of the layer, as the library counts.
        num_heads: All heads of the layer.
    """

    index: int
    num_heads: int


@dataclass
class Attachment:
    """What all attention modules of one attached model share.

    Args:
        config: The settings that :func:`attach` got.
        root_config: The model's configuration, which carries ``jat``.
        implementations: Every configuration of the model and the attention it had before.
        num_modules: How many attention modules carry a :class:`LayerState`.
        hooks: Handles of the hooks on the model and its parts.
        enabled: False inside :func:`disabled`.
        output_attentions: Whether the forward in progress asked for attention probabilities.
        recorder: Takes queries and keys inside :func:`capture_scores`.
    """

    config: JatConfig
    root_config: PreTrainedConfig
    implementations: list[tuple[PreTrainedConfig, str | None]]
    num_modules: int
    hooks: list[RemovableHandle] = field(default_factory=list)
    enabled: bool = True
    output_attentions: bool = False
    recorder: ScoreRecorder | None = None

    def start_forward(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Note at the whole model whether its caller asked for attention probabilities.

        Some models (GPT-2, OPT) do not pass the wish on to their attention.
        """
        wish = kwargs.get("output_attentions")
        if wish is None:
            wish = getattr(module.config, "output_attentions", False)
        self.output_attentions = bool(wish)

    def enter_part(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Note the same at a model inside the model, which may also be called on its own."""
        wish = kwargs.get("output_attentions")
        if wish is not None:
            self.output_attentions = bool(wish)

    def note_cache(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Note at an attention module the cache that it is about to fill."""
        from transformers import Cache

        note(module, next((x for x in (*args, *kwargs.values()) if isinstance(x, Cache)), None))


@dataclass(frozen=True)
class LayerState:
    """What one attention module of an attached model carries.

    Args:
        attachment: What it shares with the others.
        jump: Its jump heads; None if all of its heads are ordinary.
        pattern: Where its heads read their scores; None for everywhere.
    """

    attachment: Attachment
    jump: JumpLayer | None
    pattern: Pattern | None = None


def layer_state(module: nn.Module) -> LayerState | None:
    """Return what :func:`attach` left on an attention module."""
    return getattr(module, STATE_ATTRIBUTE, None)


def find_attachment(model: nn.Module) -> Attachment | None:
    """Return what the attention modules of a model share."""
    states = (layer_state(module) for module in model.modules())
    return next((state.attachment for state in states if state is not None), None)


def require_attachment(model: nn.Module) -> Attachment:
    """Return what the attention modules of a model share, or say that there is nothing."""
    attachment = find_attachment(model)
    if attachment is None:
        raise ValueError(f"model must have jump heads, got a plain {type(model).__name__}")
    return attachment


def attached_config(model: nn.Module) -> JatConfig | None:
    """Return the settings of a model's jump heads.

    Args:
        model: The model, or a wrapper around it.

    Returns:
        The config that :func:`attach` got; None if the model has no jump heads.
    """
    attachment = find_attachment(model)
    return None if attachment is None else attachment.config
