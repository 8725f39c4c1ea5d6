from .adapter import attach, attached_config, detach, disabled
from .by_name import register_clustered
from .capture import CapturedLayer, capture_scores
from .given_graphs import keep_graphs, using_global_tokens, using_graphs
from .positions import resize_position_embeddings
from .saving import from_pretrained, model_card_text, save_heads, save_pretrained, summary
from .support import LayerSupport, supports

__all__ = [
    "CapturedLayer",
    "LayerSupport",
    "attach",
    "attached_config",
    "capture_scores",
    "detach",
    "disabled",
    "from_pretrained",
    "keep_graphs",
    "model_card_text",
    "register_clustered",
    "resize_position_embeddings",
    "save_heads",
    "save_pretrained",
    "summary",
    "supports",
    "using_global_tokens",
    "using_graphs",
]
