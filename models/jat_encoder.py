"""JAT encoder: a classifier of sequences, trained from scratch, some of whose heads jump.

In a jump head two tokens are joined where both score some third token alike, and queries and keys
are averaged along these edges before they meet. So one layer reads what takes two ordinary ones.

With ``JatConfig(conv="GATv2Conv")``, or any other layer of PyG, message passing takes the place of
the average: queries, keys and values go through that layer along the graph of each head's own
attention. A strength for each head, learned from 0, says how much of that counts.

Sources:
    Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*, NeurIPS
    2022, for the jump heads.
    Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, for the sinusoids and the rest.
    Layers are normalised before they are applied, as in Xiong et al. (2020).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from jat_graph import JatConfig
from jat_graph.nn import EncoderSelfAttention


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
            EncoderLayer(channels, heads, config, dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(channels)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits ``[B, classes]`` for tokens ``[B, L]``; the mask is True for real ones."""
        x = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)  # [B, L, C]
        x = x + sinusoids(x.size(1), x.size(2)).to(x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.classifier(self.norm(x[:, 0]))


class EncoderLayer(nn.Module):
    """Self-attention, then two linear layers, each added to what came in."""

    def __init__(self, channels: int, heads: int, config: JatConfig | None, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(channels)
        self.attention = EncoderSelfAttention(channels, heads, config, dropout=dropout)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(channels),
            nn.Linear(channels, 4 * channels),
            nn.GELU(),
            nn.Linear(4 * channels, channels),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return features of the same shape, ``[B, L, C]``."""
        x = x + self.attention(self.attention_norm(x), mask)
        return x + self.feed_forward(x)


def sinusoids(length: int, channels: int) -> Tensor:
    """Return sines and cosines of each place, their periods growing to 10000: ``[L, C]``."""
    period = 10000 ** (torch.arange(0, channels, 2) / channels)  # [C / 2]
    angle = torch.arange(length).unsqueeze(-1) / period
    return torch.cat([angle.sin(), angle.cos()], dim=-1)
