"""Music Transformer: a language model of notes whose attention knows how far apart they are.

Each layer's scores have a learned term for the distance between query and key, so that "four notes
ago" is the same everywhere in a piece. With ``relative=False`` the same model has ordinary
attention, for comparison; both know the absolute place from sinusoids.

Sources:
    Huang et al., *Music Transformer: Generating Music with Long-Term Structure*, ICLR 2019.
    Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, for the rest of the layer.
    Layers are normalised before they are applied, as in Tensor2Tensor and GPT-2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from jat_graph.nn import DecoderSelfAttention, RelativeAttention


class MusicTransformer(nn.Module):
    """Logits of the next token at every place.

    Args:
        vocabulary_size: Number of different tokens V.
        channels: Size C of each token's features.
        heads: Number of heads in each layer.
        layers: Number of layers.
        max_distance: Distances with a relative score of their own; farther tokens have none.
        relative: Whether there are relative scores at all.
        dropout: Dropout probability after each part of a layer.
    """

    def __init__(
        self,
        vocabulary_size: int,
        channels: int = 64,
        heads: int = 4,
        layers: int = 2,
        max_distance: int = 256,
        relative: bool = True,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, channels)
        nn.init.normal_(self.embedding.weight, std=channels**-0.5)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            attention = (
                RelativeAttention(
                    channels, heads, max_distance, is_causal=True, far="zero", dropout=dropout
                )
                if relative
                else DecoderSelfAttention(channels, heads, dropout=dropout)
            )
            self.layers.append(Layer(attention, channels, dropout))
        self.norm = nn.LayerNorm(channels)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits ``[B, L, V]`` for tokens ``[B, L]``; the mask is True for real ones."""
        x = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)  # [B, L, C]
        x = x + sinusoids(x.size(1), x.size(2)).to(x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x) @ self.embedding.weight.T  # [B, L, V]


class Layer(nn.Module):
    """Attention, then two linear layers, each added to what came in."""

    def __init__(self, attention: nn.Module, channels: int, dropout: float) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(channels)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(channels),
            nn.Linear(channels, 4 * channels),
            nn.ReLU(),
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
