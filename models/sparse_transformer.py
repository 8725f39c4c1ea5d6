"""Sparse Transformer: a language model whose heads read a few of the tokens so far.

Half of the heads read the last tokens; the other half read every so many-th token before (strided)
or a summary token of every block (fixed). So two layers pass a message from any token to any later
one, and with a stride near √L a head costs O(L √L) time. Nothing of size L×L is stored.

Sources:
    Child et al., *Generating Long Sequences with Sparse Transformers*, 2019: section 4 for the
    factorised heads, 5.2 for the layers (normalised before they are applied) and 5.3 for how the
    weights of what is added to the residual stream start.
    The paper adds an embedding of the row and one of the column to each token for images, and of
    the place for text, as here.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from jat_graph.patterns import Pattern, pattern_attention
from models.blocks import TransformerLayer


class SparseTransformer(nn.Module):
    """Logits of the next token at every place.

    Args:
        vocabulary_size: Number of different tokens V.
        pattern: Which tokens each head reads, such as ``Strided(16)`` or ``Fixed(16)``.
        length: Largest number of tokens L.
        channels, heads, layers: Size C of each token's features, heads of a layer, and layers.
        dropout: Dropout probability of what each part of a layer adds.
    """

    def __init__(
        self,
        vocabulary_size: int,
        pattern: Pattern,
        length: int,
        channels: int = 128,
        heads: int = 4,
        layers: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary_size, channels)
        self.place = nn.Embedding(length, channels)
        for table in (self.token, self.place):
            nn.init.normal_(table.weight, std=0.125 / math.sqrt(channels))
        self.layers = nn.ModuleList(
            TransformerLayer(PatternAttention(channels, heads, pattern, dropout), channels, dropout)
            for _ in range(layers)
        )
        for layer in self.layers:
            for last in (layer.attention.output, layer.feed_forward[-2]):
                nn.init.normal_(last.weight, std=1 / math.sqrt(2 * layers * last.in_features))
        self.norm = nn.LayerNorm(channels)
        self.logits = nn.Linear(channels, vocabulary_size)
        nn.init.zeros_(self.logits.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits ``[B, L, V]`` for tokens ``[B, L]``."""
        x = self.token(tokens) + self.place.weight[: tokens.size(1)]  # [B, L, C]
        for layer in self.layers:
            x = layer(x, None)
        return self.logits(self.norm(x))  # [B, L, V]


class PatternAttention(nn.Module):
    """Causal attention within a pattern."""

    def __init__(self, channels: int, heads: int, pattern: Pattern, dropout: float) -> None:
        super().__init__()
        self.heads, self.pattern = heads, pattern
        self.project = nn.Linear(channels, 3 * channels)
        self.output = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, _: None) -> Tensor:
        """Return what the heads read, ``[B, L, C]``; there is no mask."""
        heads = self.project(x).unflatten(-1, (3, self.heads, -1))  # [B, L, 3, H, D]
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # [B, H, L, D] each
        read = pattern_attention(query, key, value, pattern=self.pattern, is_causal=True)
        return self.dropout(self.output(read.transpose(1, 2).flatten(2)))
