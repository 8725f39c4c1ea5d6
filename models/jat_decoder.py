"""JAT decoder: a language model some of whose heads jump.

In a jump head two tokens are joined where both score some earlier token alike, and queries and keys
are averaged along these edges before they meet. Votes and edges keep to the causal order: a token
only ever depends on itself and on those before it, however many hops there are.

Sources:
    Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*, NeurIPS
    2022, for the jump heads; its section 3.2.1 for the masked ones.
"""

from __future__ import annotations

from jat_graph import JatConfig
from jat_graph.nn import JumpSelfAttention
from models.blocks import LanguageModel


class JatDecoder(LanguageModel):
    """Logits of the next token at every place.

    Args:
        vocabulary_size: Number of different tokens V.
        config: The settings of the jump heads of every layer; None if no head jumps. Scores start
            near 0, where the default threshold joins nothing: take a small one.
        channels, heads, layers: Size C of each token's features, heads of a layer, and layers.
        dropout: Dropout probability after each part of a layer.
    """

    def __init__(
        self,
        vocabulary_size: int,
        config: JatConfig | None,
        channels: int = 128,
        heads: int = 4,
        layers: int = 4,
        dropout: float = 0.1,
    ) -> None:
        rest = {"dropout": dropout, "is_causal": True}
        attentions = (JumpSelfAttention(channels, heads, config, **rest) for _ in range(layers))
        super().__init__(vocabulary_size, attentions, channels, dropout)
