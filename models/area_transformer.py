"""Area transformer: a language model that reads spans of characters as well as single ones.

A character says little; a syllable or a word says more. Each layer attends to all spans of up to
``max_width`` characters before the next one: the key of a span is the mean of its keys, its value
the sum of its values, so that spans cost no parameters. With ``max_width=1`` the same model has
ordinary attention, for comparison.

Sources:
    Li et al., *Area Attention*, ICML 2019, which gains most on characters.
    Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, for the sinusoids and the rest.
    Layers are normalised before they are applied, as in GPT-2, and the embedding is used again for
    the logits, as in Press and Wolf (2017).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from jat_graph.nn import AreaAttention


class AreaTransformer(nn.Module):
    """Logits of the next token at every place.

    Args:
        vocabulary_size: Number of different tokens V.
        max_width: Most tokens of a span.
        channels: Size C of each token's features.
        heads: Number of heads in each layer.
        layers: Number of layers.
        dropout: Dropout probability in and after each part of a layer.
    """

    def __init__(
        self,
        vocabulary_size: int,
        max_width: int = 3,
        channels: int = 128,
        heads: int = 4,
        layers: int = 3,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, channels)
        nn.init.normal_(self.embedding.weight, std=channels**-0.5)
        self.layers = nn.ModuleList(
            AreaLayer(channels, heads, max_width, dropout) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(channels)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits ``[B, L, V]`` for tokens ``[B, L]``; the mask is True for real ones."""
        x = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)  # [B, L, C]
        x = x + sinusoids(x.size(1), x.size(2)).to(x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x) @ self.embedding.weight.T  # [B, L, V]


class AreaLayer(nn.Module):
    """Masked attention to spans, then two linear layers, each added to what came in."""

    def __init__(self, channels: int, heads: int, max_width: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(channels)
        self.attention = AreaAttention(channels, heads, max_width, is_causal=True, dropout=dropout)
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
