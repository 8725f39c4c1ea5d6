"""Heads that come by the name of our attention alone: a layer's state, made at its first call."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from jat_graph.hf.filters import FilterLayer
from jat_graph.hf.jump_layer import JumpLayer
from jat_graph.hf.kinds import LayerHeads
from jat_graph.hf.modules import AttentionModule, why_left_alone
from jat_graph.hf.state import (
    NAMES,
    SAVED_NAME,
    STATE_ATTRIBUTE,
    Attachment,
    LayerState,
)
from jat_graph.hf.triplets import TripletLayer

KINDS: tuple[type[LayerHeads], ...] = (JumpLayer, TripletLayer, FilterLayer)
# What settings of ours always hold, filter heads the second, and those of others hardly.
OURS = ({"heads", "layers"}, {"rule", "layers"})


def saved_configs(settings: object) -> dict[type[LayerHeads], Any]:
    """Return the settings of each kind of heads that a model's configuration, or a dict, holds.

    What somebody else keeps under the same name is no business of ours.
    """
    fields = settings if isinstance(settings, dict) else vars(settings)
    found = {kind: fields.get(kind.name) for kind in KINDS}
    return {
        kind: kind.config_class.from_dict(value)
        for kind, value in found.items()
        if isinstance(value, dict) and any(set(value) >= own for own in OURS)
    }


def asks_for_heads(config: Any) -> bool:
    """Tell whether a model's configuration names our attention, and has settings for it."""
    return config._attn_implementation in NAMES and bool(saved_configs(config))


def check_without_weights(configs: dict[type[LayerHeads], Any], what: str) -> None:
    """Refuse heads whose weights transformers left in the folder when it loaded the model."""
    if any(kind.learns(config) for kind, config in configs.items()):
        raise ValueError(
            f"{what} has heads with weights of their own, which were not loaded: "
            "load it with jat_graph.from_pretrained"
        )


# Once a layer has its state, it is traced like any other.
@torch.compiler.disable(  # type: ignore[no-untyped-call, untyped-decorator]
    reason="heads that came by name want one call before torch.compile"
)
def start_layer(module: nn.Module) -> LayerState:
    """Make the state of an attention module whose model was loaded by transformers alone."""
    name, settings = type(module).__name__, module.config
    configs = saved_configs(settings)
    if not configs:
        raise ValueError(
            f"{name} runs on the attention of jat_graph, but its configuration has no settings of "
            "heads: load the model with jat_graph.from_pretrained, or use jat_graph.attach"
        )
    check_without_weights(configs, name)
    entry = AttentionModule(name, module, why_left_alone(module))
    attachment = Attachment(configs=configs, by_name=True)
    attachment.note_kinds()
    state = LayerState(attachment, entry.left_alone is None)
    if state.takes_heads:
        state.heads = tuple(
            heads
            for kind, config in configs.items()
            if (heads := _heads(kind, entry, config)) is not None
        )
    setattr(module, STATE_ATTRIBUTE, state)
    settings.attn_implementation = SAVED_NAME  # type: ignore[union-attr]  # for the next save
    return state


def _heads(kind: type[LayerHeads], entry: AttentionModule, config: Any) -> LayerHeads | None:
    """Return the heads of a kind in a module; None where its layer has none."""
    index = _layer_index(entry.module)
    if index is None:
        if config.layers is not None or kind.needs_rows(config):
            raise ValueError(
                f"{entry.name} does not know its layer, on which its heads depend: "
                "load the model with jat_graph.from_pretrained"
            )
        index = 0
    if config.layers is None:
        return kind.in_module(entry, index, index, config)
    if index not in config.layers:
        return None
    return kind.in_module(entry, index, config.layers.index(index), config)


def _layer_index(module: Any) -> int | None:
    """Return the number of a module's layer, a decoder's after those of the encoder."""
    number, config = getattr(module, "layer_idx", None), module.config
    if number is not None and config.is_encoder_decoder and getattr(module, "is_decoder", False):
        return int(number + config.num_hidden_layers)
    return number
