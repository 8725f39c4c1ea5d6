"""Jump heads, and heads of other kinds, in models of Hugging Face transformers.

Importing it registers the attention function "jat" with transformers, and changes nothing of it.
"""

from jat_graph.hf.adapter import attach, attached_config, detach, disabled
from jat_graph.hf.capture import CapturedLayer, capture_scores
from jat_graph.hf.checkpointing import keep_graphs
from jat_graph.hf.depth import change_depth
from jat_graph.hf.filters import FilterConfig
from jat_graph.hf.given_graphs import using_graphs
from jat_graph.hf.loading import from_pretrained
from jat_graph.hf.positions import resize_position_embeddings
from jat_graph.hf.reporting import summary
from jat_graph.hf.saving import model_card_text, save_heads, save_pretrained
from jat_graph.hf.triplets import TripletConfig

__all__ = [
    "CapturedLayer",
    "FilterConfig",
    "TripletConfig",
    "attach",
    "attached_config",
    "capture_scores",
    "change_depth",
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
