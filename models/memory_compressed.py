"""T-DMCA: a language model whose layers look near and far in turns.

A local layer attends within blocks of tokens. A compressed layer attends to everything before,
which a strided convolution of keys and values has made a third as long. Together they read far for
less than ordinary attention costs.

Sources:
    Liu et al., *Generating Wikipedia by Summarizing Long Sequences*, ICLR 2018: the transformer
    decoder with memory-compressed attention.
    Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, for the sinusoids.
    The embedding is used again for the logits, as in Press and Wolf (2017).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from jat_graph.nn import TDMCA


class MemoryCompressedModel(nn.Module):
    """Logits of the next token at every place.

    Args:
        vocabulary_size: Number of different tokens V.
        channels: Size C of each token's features.
        heads: Number of heads in each layer.
        layers: Number of layers: local, compressed, local …
        block: Tokens of a block in the local layers.
        dropout: Dropout probability after each part of a layer.
    """

    def __init__(
        self,
        vocabulary_size: int,
        channels: int = 64,
        heads: int = 4,
        layers: int = 4,
        block: int = 256,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, channels)
        nn.init.normal_(self.embedding.weight, std=channels**-0.5)
        self.decoder = TDMCA(channels, heads, layers, block, dropout=dropout)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits ``[B, L, V]`` for tokens ``[B, L]``; the mask is True for real ones."""
        x = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)  # [B, L, C]
        x = x + sinusoids(x.size(1), x.size(2)).to(x)
        return self.decoder(x, mask) @ self.embedding.weight.T  # [B, L, V]


def sinusoids(length: int, channels: int) -> Tensor:
    """Return sines and cosines of each place, their periods growing to 10000: ``[L, C]``."""
    period = 10000 ** (torch.arange(0, channels, 2) / channels)  # [C / 2]
    angle = torch.arange(length).unsqueeze(-1) / period
    return torch.cat([angle.sin(), angle.cos()], dim=-1)
