"""Bi-BloSAN: a sentence classifier whose words know their order by self-attention alone.

No recurrence, no convolution and no embedding of places: the words of a block attend to those
before them and, in a second stack, to those after them, blocks do likewise among themselves, and an
average, whose weights differ from feature to feature, makes one vector of the sentence.

Sources:
    Shen et al., *Bi-Directional Block Self-Attention for Fast and Memory-Efficient Sequence
    Modeling*, ICLR 2018: figure 4, and the released code for what the figure leaves open.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from jat_graph.nn import BlockSelfAttention, SourceToToken


class BiBloSAN(nn.Module):
    """Logits of the class of each sentence.

    Args:
        vocabulary_size: Number of different words.
        classes: Number of classes.
        channels: Size E of each word's embedding.
        hidden_channels: Size C of each direction.
        block_length: Words of a block; None means the length that needs the least memory.
        dropout: Dropout probability of the inputs of all linear layers.
    """

    def __init__(
        self,
        vocabulary_size: int,
        classes: int,
        channels: int = 100,
        hidden_channels: int = 100,
        block_length: int | None = 5,
        dropout: float = 0.25,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, channels)
        nn.init.normal_(self.embedding.weight, std=0.1)
        self.context = BlockSelfAttention(channels, hidden_channels, block_length, dropout)
        self.sentence = SourceToToken(2 * hidden_channels, dropout)
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(2 * hidden_channels, hidden_channels),
            nn.ELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_channels, classes),
        )

    def forward(self, words: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return logits ``[B, classes]`` for words ``[B, L]``; the mask is True for real ones."""
        x = self.embedding(words)  # [B, L, E]
        x = self.context(x, mask)  # [B, L, 2 · C]
        sentence = self.sentence(x, mask)  # [B, 2 · C]
        logits: Tensor = self.classifier(torch.nn.functional.elu(sentence))
        return logits
