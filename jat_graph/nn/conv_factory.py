"""Layers of PyG for heads: by their name and arguments, which settings hold, or from a factory."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from torch import nn

from jat_graph.jumps.config import JatConfig
from jat_graph.jumps.fields import EXTERNAL, layer_of_pyg
from jat_graph.jumps.layers import HeadConvs
from jat_graph.nn.convs import JumpConv, StoneConv

# Takes the size of a head, and gives a layer, or one each for queries, keys and values.
ConvFactory: TypeAlias = Callable[[int], nn.Module | Sequence[nn.Module]] | type[nn.Module]

OURS = {"JumpConv": JumpConv, "StoneConv": StoneConv}
WIDTHS = ("in_channels", "out_channels", "channels")


def with_conv(config: JatConfig, conv: ConvFactory | None) -> JatConfig:
    """Return the settings with a layer: its name and arguments, where it can be built of them."""
    if conv is None:
        if config.conv == EXTERNAL:
            raise ValueError("conv must be given: the settings cannot build the layer of the heads")
        return config
    wanted = "a factory that takes the size of a head"
    if isinstance(conv, nn.Module):
        name = type(conv).__name__
        wanted = f"{wanted}, such as `lambda size: {name}(size, size)`"
        raise ValueError(f"conv must be a class, or {wanted}, got one {name}")
    if not callable(conv):
        raise ValueError(
            f"conv must be a class or a factory, got {conv!r}; JatConfig(conv=...) takes names"
        )
    if isinstance(conv, type) and _described(conv) is None:
        wanted = f"a layer of torch_geometric.nn or jat_graph.nn, or {wanted}"
        raise ValueError(f"conv must be {wanted}, got the class {conv.__name__}")
    return config.replace(conv=_described(conv) or EXTERNAL)


def build_layers(config: JatConfig, conv: ConvFactory | None, head_dim: int) -> HeadConvs:
    """Return the layers of some heads."""
    made = conv(head_dim) if config.conv == EXTERNAL and conv else _build(config.conv, head_dim)
    layers = HeadConvs(made, config)
    layers.try_on(head_dim)
    return layers


def _described(conv: Any) -> dict[str, Any] | None:
    """Return the name and arguments of a layer that settings can build; else None."""
    plain = isinstance(conv, partial) and not conv.args
    layer, arguments = (conv.func, conv.keywords) if plain else (conv, {})
    name = getattr(layer, "__name__", "")
    if not isinstance(layer, type) or (OURS.get(name) or layer_of_pyg(name)) is not layer:
        return None
    try:
        kept = json.loads(json.dumps(arguments))
    except (TypeError, ValueError):
        return None
    return {"layer": name, **arguments} if kept == arguments else None


def _build(settings: Any, head_dim: int) -> nn.Module:
    """Build a layer by its name; its numbers of channels, where it has any, are the heads'."""
    arguments = {name: value for name, value in settings.items() if name != "layer"}
    layer: Any = OURS.get(settings["layer"]) or layer_of_pyg(settings["layer"])
    widths = {name: head_dim for name in WIDTHS if name in inspect.signature(layer).parameters}
    try:
        return layer(**widths | arguments)  # type: ignore[no-any-return]
    except (TypeError, ValueError, AssertionError) as error:
        raise ValueError(f"conv {settings['layer']} of {arguments}: {error}") from error
