"""Load a model that was saved with jump heads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.config import JatConfig
from jat_graph.hf.adapter import attach
from jat_graph.hf.interface import NAME
from jat_graph.hf.triplet import load_triplets
from jat_graph.hf.triplet_config import TripletConfig

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def from_pretrained(auto_class: Any, path: str | Path, **kwargs: Any) -> PreTrainedModel:
    """Load a model with the jump heads, or triplet heads, that it was saved with.

    Args:
        auto_class: ``AutoModel`` or one of its kind, or a model class of transformers.
        path: Folder, or name on the Hub.
        kwargs: Arguments of ``auto_class.from_pretrained``: ``dtype``, ``config``, ``revision`` …
            ``attn_implementation`` is what :func:`detach` goes back to. (default: ``"sdpa"``)

    Returns:
        The model, with ``config.jat``, or ``config.triplet``, attached.

    Raises:
        ValueError: If the model was saved without jump heads, or by a newer version.
        OSError: If there is no such model.
    """
    triplets = _saved_settings(path, kwargs, "triplet")
    settings = _saved_settings(path, kwargs, "jat")
    if settings is None and triplets is None:
        raise ValueError(
            f"{path} was saved without jump heads; load it with transformers and use "
            "jat_graph.attach"
        )
    if kwargs.get("attn_implementation", NAME) == NAME:
        kwargs["attn_implementation"] = "sdpa"
    if settings is None:
        return load_triplets(auto_class, path, TripletConfig.from_dict(triplets or {}), kwargs)
    config = JatConfig.from_dict(settings)
    loaded = auto_class.from_pretrained(path, **kwargs)
    # With output_loading_info=True it is the model and a report.
    attach(loaded[0] if isinstance(loaded, tuple) else loaded, config)
    return loaded  # type: ignore[no-any-return]


def _saved_settings(path: str | Path, kwargs: dict[str, Any], name: str) -> dict[str, Any] | None:
    from transformers import PreTrainedConfig

    config: PreTrainedConfig | None = kwargs.get("config")
    if isinstance(config, PreTrainedConfig):
        settings = getattr(config, name, None)
    else:
        place = path if config is None else config
        settings = PreTrainedConfig.get_config_dict(place, **kwargs)[0].get(name)
    if settings is not None and not isinstance(settings, dict):
        raise ValueError(f"config.{name} of {path} must be a dictionary, got {settings!r}")
    return settings
