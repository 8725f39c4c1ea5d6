"""Take layers off the top of a model, or copy the top one on top."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, TypeVar

from torch import nn

from jat_graph.core.numbers import check_integer
from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.modules import attention_modules, transformer_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ModelT = TypeVar("ModelT", bound=nn.Module)


def change_depth(model: ModelT, depth: int) -> ModelT:
    """Give a model without heads of ours another number of layers, in place; return it.

    Layers are removed from the top; where there are too few, copies of the top layer are put on
    top, as the JAT paper does for its figure 4.

    Reference:
        Zhou et al., *Jump Self-attention*, NeurIPS 2022, Figure 4.
    """
    check_integer("depth", depth, least=1)
    base = transformer_of(model)
    if find_attachment(base) is not None:
        raise ValueError("depth must be changed before heads are attached")
    layers = _stack(base)
    while len(layers) < depth:
        layers.append(_copy(layers[-1]))
    del layers[depth:]
    for index, layer in enumerate(layers):
        for module in layer.modules():  # a cache of keys is kept by this number
            if hasattr(module, "layer_idx"):
                module.layer_idx = index  # type: ignore[assignment]
    base.config.num_hidden_layers = depth
    kinds = getattr(base.config, "layer_types", None)
    if kinds:
        base.config.layer_types = [kinds[0]] * depth
    return model


def _copy(layer: nn.Module) -> nn.Module:
    """Copy a layer, but not the model's configuration that its modules hold, which says a lot."""
    configs = [getattr(module, "config", None) for module in layer.modules()]
    return deepcopy(layer, {id(config): config for config in configs if config is not None})


def _stack(model: PreTrainedModel) -> nn.ModuleList:
    """Return the list of a model's layers."""
    count = getattr(model.config, "num_hidden_layers", None)
    names = [entry.name for entry in attention_modules(model) if entry.left_alone is None]
    found = [
        module
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList)
        and len(module) == count == sum(inner.startswith(f"{name}.") for inner in names)
    ]
    kind = type(model).__name__
    if len(found) != 1 or len(names) != count:
        raise ValueError(f"depth needs a model with one stack of layers, got {kind}")
    if len(set(getattr(model.config, "layer_types", None) or ())) > 1:
        raise ValueError(f"depth needs a model whose layers are all of one kind, got {kind}")
    return found[0]
