"""Jump heads, and heads of other kinds, in models of Hugging Face transformers.

Importing it registers the attention function "jat" with transformers, and changes nothing of it.
"""

from typing import TYPE_CHECKING

import lazy_loader

import jat_graph.hf.interface  # noqa: F401  # registers the attention function

if TYPE_CHECKING:
    from jat_graph.hf.adapter import attach, attached_config, detach, disabled
    from jat_graph.hf.capture import CapturedLayer, capture_scores
    from jat_graph.hf.checkpointing import keep_graphs
    from jat_graph.hf.filters import FilterConfig
    from jat_graph.hf.given_graphs import using_graphs
    from jat_graph.hf.loading import from_pretrained
    from jat_graph.hf.positions import resize_position_embeddings
    from jat_graph.hf.saving import model_card_text, save_heads, save_pretrained, summary
    from jat_graph.hf.triplets import TripletConfig

__all__ = [
    "CapturedLayer",
    "FilterConfig",
    "TripletConfig",
    "attach",
    "attached_config",
    "capture_scores",
    "detach",
    "disabled",
    "from_pretrained",
    "keep_graphs",
    "model_card_text",
    "resize_position_embeddings",
    "save_heads",
    "save_pretrained",
    "summary",
    "using_graphs",
]

# Imported at their first use: nobody waits for what is not used.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "adapter": ["attach", "attached_config", "detach", "disabled"],
        "capture": ["CapturedLayer", "capture_scores"],
        "checkpointing": ["keep_graphs"],
        "filters": ["FilterConfig"],
        "given_graphs": ["using_graphs"],
        "loading": ["from_pretrained"],
        "positions": ["resize_position_embeddings"],
        "saving": ["model_card_text", "save_heads", "save_pretrained", "summary"],
        "triplets": ["TripletConfig"],
    },
)
