"""JAT encoder: a classifier of sequences, trained from scratch, some of whose heads jump.

In a jump head two tokens are joined where both score some third token alike, and queries and keys
are averaged along these edges before they meet. So one layer reads what takes two ordinary ones.

Sources:
    Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*, NeurIPS
    2022, for the jump heads.
"""

from __future__ import annotations

from torch import Tensor, nn

from jat_graph import JatConfig
from jat_graph.nn import JumpSelfAttention
from models.blocks import LanguageModel


class JatEncoder(LanguageModel):
    """Logits of the class of each sequence, read from its first token.

    Args:
        vocabulary_size: Number of different tokens.
        classes: Number of classes.
        config: The settings of the jump heads of every layer, with ``conv`` of layers in them; None
            if no head jumps. Scores start near 0, where the default threshold joins nothing: take
            ``standardize``, a small one, or stones.
        channels, heads, layers: Size C of each token's features, heads of a layer, and layers.
        dropout: Dropout probability after each part of a layer.
    """

    def __init__(
        self,
        vocabulary_size: int,
        classes: int,
        config: JatConfig | None,
        channels: int = 128,
        heads: int = 4,
        layers: int = 4,
        dropout: float = 0.0,
    ) -> None:
        attentions = (
            JumpSelfAttention(channels, heads, config, dropout=dropout) for _ in range(layers)
        )
        super().__init__(vocabulary_size, attentions, channels, dropout)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits ``[B, classes]`` for tokens ``[B, L]``; the mask is True for real ones."""
        return self.classifier(self.read(tokens, mask)[:, 0])
