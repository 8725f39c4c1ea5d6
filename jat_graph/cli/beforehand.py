"""What is refused before anything that works is imported, which takes seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.files import check_model_name, read_object

if TYPE_CHECKING:
    from jat_graph.config import JatConfig
    from jat_graph.hf.triplets import TripletConfig

# What configurations of transformers call the numbers of layers and heads.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads")
OWN = ("jat", "triplet")  # heads that a model was saved with


def check_heads(
    model: str, configs: Iterable[JatConfig | TripletConfig | None], depth: int | None = None
) -> None:
    """Refuse a folder that is not there, and layers and heads that the model in it lacks.

    What a configuration does not say is left to those who load the model.
    """
    check_model_name(model)
    settings = _settings(model)
    layers, heads = (_first(settings, names) for names in (LAYERS, HEADS))
    if any(name in settings for name in OWN):  # whose settings only change
        return
    for config in configs:
        if config is not None and layers is not None:
            config.layer_indices(layers if depth is None else depth)
        if config is not None and heads is not None:
            config.head_indices(heads)


def check_look(model: str, chosen: Mapping[str, Any]) -> None:
    """Refuse layers and heads to look at that a model lacks."""
    settings = _settings(model)
    for option, word, names in (("--layer", "layers", LAYERS), ("--head", "heads", HEADS)):
        count = _first(settings, names)
        for index in chosen[word] or ():
            if count is not None and index >= count:
                raise ValueError(
                    f"{option} must be one of the model's {count} {word}, 0 to {count - 1}, "
                    f"got {index}"
                )


def check_states(model: str, layers: Iterable[int]) -> None:
    """Refuse layers of states, 0 for the embeddings, that a model lacks."""
    count = _first(_settings(model), LAYERS)
    for layer in layers:
        if count is not None and not 0 <= layer <= count:
            raise ValueError(f"--layer must be 0 to {count}, the model's layers, got {layer}")


def _settings(model: str) -> dict[str, Any]:
    """What a local folder says of its model, if that has one stack of layers."""
    try:
        settings = read_object(Path(model) / "config.json", "configuration")
    except (OSError, ValueError):  # which is said where the model is loaded
        return {}
    return {} if settings.get("is_encoder_decoder") else settings


def _first(settings: Mapping[str, Any], names: Iterable[str]) -> int | None:
    found = (settings.get(name) for name in names)
    return next((count for count in found if isinstance(count, int)), None)
