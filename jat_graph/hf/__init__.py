"""Jump heads, and heads of other kinds, in models of Hugging Face transformers."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jat_graph.hf.adapter import attach, attached_config, detach, disabled
    from jat_graph.hf.capture import CapturedLayer, capture_scores
    from jat_graph.hf.checkpointing import keep_graphs
    from jat_graph.hf.depth import change_depth
    from jat_graph.hf.loading import from_pretrained
    from jat_graph.hf.positions import stretch_positions
    from jat_graph.hf.triplet_config import TripletConfig

__all__ = [
    "CapturedLayer",
    "TripletConfig",
    "attach",
    "attached_config",
    "capture_scores",
    "change_depth",
    "detach",
    "disabled",
    "from_pretrained",
    "keep_graphs",
    "stretch_positions",
]

# Imported at their first use: settings of heads are read without transformers.
_MODULE_OF = {
    "CapturedLayer": "capture",
    "TripletConfig": "triplet_config",
    "attach": "adapter",
    "attached_config": "adapter",
    "capture_scores": "capture",
    "change_depth": "depth",
    "detach": "adapter",
    "disabled": "adapter",
    "from_pretrained": "loading",
    "keep_graphs": "checkpointing",
    "stretch_positions": "positions",
}

if not TYPE_CHECKING:  # a type checker would take this for every name there could be

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
