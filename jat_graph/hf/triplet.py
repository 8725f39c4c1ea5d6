"""Triplet heads, A³, in pretrained models: the competitor of jump heads, for baseline rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from jat_graph.hf.implementations import current_implementations, keep_off, restore
from jat_graph.hf.modules import (
    AttentionModule,
    attention_modules,
    serves_several_layers,
    transformer_of,
)
from jat_graph.hf.triplet_config import TripletConfig
from jat_graph.hf.triplet_interface import (
    STATE_ATTRIBUTE,
    TRIPLET_NAME,
    TripletAttachment,
    TripletLayer,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ModelT = TypeVar("ModelT", bound=nn.Module)


def attach_triplets(model: ModelT, config: TripletConfig) -> ModelT:
    """Give a model triplet heads, in place; :func:`jat_graph.attach` calls it."""
    base = transformer_of(model)
    found = attention_modules(base)
    chosen = triplet_modules(found, config)
    implementations = current_implementations(base)
    try:
        base.set_attn_implementation(TRIPLET_NAME)
        keep_off(base, implementations)
        _check_switched(base, chosen)
    except BaseException:
        restore(implementations)
        raise
    served = [entry for entry in found if entry.config._attn_implementation == TRIPLET_NAME]
    attachment = TripletAttachment(config, base.config, implementations, len(served))
    for entry, index in chosen.items():
        if config.pairs == "partner" and not hasattr(entry.module, "key2"):  # loaded ones have it
            _place_second_keys(entry, config)
            spread = getattr(entry.config, "initializer_range", 0.02)
            _draw_second_keys(entry.module, spread, config.seed + index)
    for entry in served:
        layer = TripletLayer(attachment, chosen.get(entry))
        setattr(entry.module, STATE_ATTRIBUTE, layer)
        if layer.index is not None:
            hook = entry.module.register_forward_pre_hook(layer.note_hidden, with_kwargs=True)
            attachment.hooks.append(hook)
    base.config.triplet = config.to_dict()
    # Saved with the model, so that a plain from_pretrained does not run stock attention silently.
    base.config.attn_implementation = TRIPLET_NAME
    return model


def detach_triplets(model: ModelT, attachment: TripletAttachment) -> ModelT:
    """Take triplet heads and their parameters off; :func:`jat_graph.detach` calls it."""
    modules = [module for module in model.modules() if hasattr(module, STATE_ATTRIBUTE)]
    if len(modules) != attachment.num_modules:
        raise ValueError(
            f"model must be the whole model that triplet heads were attached to, got a "
            f"{type(model).__name__} with {len(modules)} of its {attachment.num_modules} "
            "attention modules"
        )
    for module in modules:
        layer: TripletLayer = getattr(module, STATE_ATTRIBUTE)
        if layer.index is not None and attachment.config.pairs == "partner":
            del module.key2
        delattr(module, STATE_ATTRIBUTE)
    for hook in attachment.hooks:
        hook.remove()
    restore(attachment.implementations)
    for name in ("triplet", "attn_implementation"):
        delattr(attachment.root_config, name)
    return model


def triplet_modules(
    found: list[AttentionModule], config: TripletConfig
) -> dict[AttentionModule, int]:
    """Return the modules that get triplet heads with their numbers, all of it checked."""
    candidates = [entry for entry in found if entry.left_alone is None]
    layers = range(len(candidates)) if config.layers is None else config.layers
    if layers[-1] >= len(candidates):
        raise ValueError(f"layers must be below {len(candidates)}, got {config.layers}")
    if config.layers is not None and serves_several_layers(candidates):
        raise ValueError(
            f"layers must be None, because one {type(candidates[0].module).__name__} serves "
            f"several layers of this model, got {config.layers}"
        )
    chosen = {candidates[index]: index for index in layers}
    for entry in chosen:
        name = type(entry.module).__name__
        if entry.is_causal:
            raise ValueError(f"{name} is causal: triplets take in later tokens")
        if entry.num_heads < config.heads:
            raise ValueError(f"heads must be at most {entry.num_heads}, got {config.heads}")
    return chosen


def _check_switched(base: PreTrainedModel, chosen: dict[AttentionModule, int]) -> None:
    for entry in chosen:
        if entry.config._attn_implementation != TRIPLET_NAME:
            raise ValueError(
                f"{type(base).__name__} cannot have triplet heads: transformers cannot change "
                f"the attention of {type(entry.module).__name__}"
            )


def _place_second_keys(entry: AttentionModule, config: TripletConfig) -> None:
    """Give a module the linear layer of its second keys, without weights yet."""
    if config.pairs == "partner":
        width, like = entry.config.hidden_size, next(entry.module.parameters())
        size = width // entry.num_heads * config.heads
        # On "meta" nothing is drawn, so that the global state stays as it is.
        key2 = nn.Linear(width, size, device="meta", dtype=like.dtype)
        entry.module.key2 = key2.to_empty(device=like.device)


def _draw_second_keys(module: nn.Module, spread: float, seed: int) -> None:
    """Draw new weights as the model drew its own, but on the CPU and from a seed of their own."""
    key2: Any = module.key2
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.empty(key2.weight.shape).normal_(std=spread, generator=generator)
    with torch.no_grad():
        key2.weight.copy_(drawn)
        key2.bias.zero_()


def load_triplets(
    auto_class: Any, path: str | Path, config: TripletConfig, kwargs: dict[str, Any]
) -> PreTrainedModel:
    """Load a model with its triplet heads; :func:`jat_graph.from_pretrained` calls it."""
    kind = _model_class(auto_class, path, kwargs)

    def build(self: PreTrainedModel, *args: Any, **options: Any) -> None:
        kind.__init__(self, *args, **options)
        for entry in triplet_modules(attention_modules(self), config):
            _place_second_keys(entry, config)

    # transformers fills the parameters that a class has once it is built: the new layers must be
    # among them, and the model must be of its own class again afterwards.
    building: Any = type(kind.__name__, (kind,), {"__init__": build, "__module__": kind.__module__})
    loaded = building.from_pretrained(path, **kwargs)
    model = loaded[0] if isinstance(loaded, tuple) else loaded
    model.__class__ = kind
    attach_triplets(model, config)
    return loaded  # type: ignore[no-any-return]


def _model_class(auto_class: Any, path: str | Path, kwargs: dict[str, Any]) -> Any:
    """Return the class that an auto class takes for a saved model."""
    from transformers import AutoConfig, PreTrainedModel

    if issubclass(auto_class, PreTrainedModel):
        return auto_class
    config = kwargs.get("config")
    if not hasattr(config, "model_type"):
        config = AutoConfig.from_pretrained(path if config is None else config)
    with torch.device("meta"):  # no weights
        return type(auto_class.from_config(config, attn_implementation="sdpa"))
