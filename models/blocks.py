"""What models here share: a layer around attention, places, and the frame of a language model.

Sources:
    Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, for the sinusoids and the layer.
    Layers are normalised before they are applied, as in GPT-2 and Xiong et al. (2020), and the
    embedding is used again for the logits, as in Press and Wolf (2017).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class LanguageModel(nn.Module):
    """Logits of the next token at every place.

    Args:
        vocabulary_size: Number of different tokens V.
        attentions: The attention of each layer, which may be made one after the other, as their
            weights are drawn.
        channels: Size C of each token's features.
        dropout: Dropout probability after each part of a layer.
        activation: Of the linear layers.
    """

    def __init__(
        self,
        vocabulary_size: int,
        attentions: Iterable[nn.Module],
        channels: int,
        dropout: float,
        activation: type[nn.Module] = nn.GELU,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, channels)
        nn.init.normal_(self.embedding.weight, std=channels**-0.5)
        self.layers = nn.ModuleList(
            TransformerLayer(attention, channels, dropout, activation) for attention in attentions
        )
        self.norm: nn.Module = nn.LayerNorm(channels)

    def read(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return features ``[B, L, C]`` for tokens ``[B, L]``; the mask is True for real ones."""
        x = embed(self.embedding, tokens)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits ``[B, L, V]``."""
        return self.read(tokens, mask) @ self.embedding.weight.T


class TransformerLayer(nn.Module):
    """Attention, then two linear layers, each added to what came in."""

    def __init__(
        self,
        attention: nn.Module,
        channels: int,
        dropout: float,
        activation: type[nn.Module] = nn.GELU,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(channels)
        self.attention = attention
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(channels),
            nn.Linear(channels, 4 * channels),
            activation(),
            nn.Linear(4 * channels, channels),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return features of the same shape, ``[B, L, C]``."""
        x = x + self.attention(self.attention_norm(x), mask)
        return x + self.feed_forward(x)


def embed(embedding: nn.Embedding, tokens: Tensor) -> Tensor:
    """Return embeddings with sines and cosines of each place, their periods growing to 10000.

    Shapes:
        - **tokens:** ``[B, L]``
        - **output:** ``[B, L, C]``
    """
    channels = embedding.embedding_dim
    period = 10000 ** (torch.arange(0, channels, 2) / channels)  # [C / 2]
    angle = torch.arange(tokens.size(1)).unsqueeze(-1) / period
    x = embedding(tokens) * math.sqrt(channels)
    return x + torch.cat([angle.sin(), angle.cos()], dim=-1).to(x)
