"""JAT encoder: a classifier of sequences, trained from scratch, some of whose heads jump.

In a jump head two tokens are joined where both score some third token alike, and queries and keys
are averaged along these edges before they meet. So one layer reads what takes two ordinary ones.

With ``JatConfig(conv="GATv2Conv")``, or any other layer of PyG, message passing takes the place of
the average: queries, keys and values go through that layer along the graph of each head's own
attention. A strength for each head, learned from 0, says how much of that counts.

Sources:
    Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*, NeurIPS
    2022, for the jump heads.
"""

from __future__ import annotations

from torch import Tensor, nn

from jat_graph import JatConfig
from jat_graph.nn import EncoderSelfAttention
from models.blocks import TransformerLayer, embed


class JatEncoder(nn.Module):
    """Logits of the class of each sequence, read from its first token.

    Args:
        vocabulary_size: Number of different tokens.
        classes: Number of classes.
        config: The settings of the jump heads of every layer, with ``conv`` of layers in them; None
            if no head jumps. Scores start near 0, where the default threshold joins nothing: take
            ``standardize``, a small one, or stones.
        channels: Size C of each token's features.
        heads: Number of heads in each layer.
        layers: Number of layers.
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
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, channels)
        nn.init.normal_(self.embedding.weight, std=channels**-0.5)
        self.layers = nn.ModuleList(
            TransformerLayer(
                EncoderSelfAttention(channels, heads, config, dropout=dropout), channels, dropout
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(channels)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits ``[B, classes]`` for tokens ``[B, L]``; the mask is True for real ones."""
        x = embed(self.embedding, tokens)  # [B, L, C]
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(self.norm(x[:, 0]))
