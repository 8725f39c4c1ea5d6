"""Music Transformer: a language model of notes whose attention knows how far apart they are.

Each layer's scores have a learned term for the distance between query and key, so that "four notes
ago" is the same everywhere in a piece. With ``relative=False`` the same model has ordinary
attention, for comparison; both know the absolute place from sinusoids.

Source:
    Huang et al., *Music Transformer: Generating Music with Long-Term Structure*, ICLR 2019.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jat_graph.nn import JumpSelfAttention, SequenceSelfAttention
from models.blocks import LanguageModel


class MusicTransformer(LanguageModel):
    """Logits of the next token at every place.

    Args:
        vocabulary_size: Number of different tokens V.
        channels, heads, layers: Size C of each token's features, heads of a layer, and layers.
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
        def attention() -> nn.Module:
            if relative:
                return RelativeAttention(channels, heads, max_distance, dropout)
            return JumpSelfAttention(channels, heads, dropout=dropout, is_causal=True)

        attentions = (attention() for _ in range(layers))
        super().__init__(vocabulary_size, attentions, channels, dropout, nn.ReLU)


class RelativeAttention(SequenceSelfAttention):
    r"""Causal multi-head self-attention with a learned score for each distance.

    .. math::
        \mathrm{softmax}\left((\mathbf{Q} \mathbf{K}^{\top} + \mathbf{S}^{rel}) / \sqrt{D} \right)
        \mathbf{V}, \qquad S^{rel}_{ij} = \mathbf{q}_i \cdot \mathbf{E}_{i - j}

    Each head has its own table E, whose row r is the distance ``max_distance − 1 − r``; farther
    tokens have no relative score, as in Tensor2Tensor. The products with E are brought into place
    by skewing: the relative term needs O(L · D) memory beside scores. Places count valid tokens.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H of D = C / H features.
        max_distance: How many distances, from 0 on, have a row of their own.
        dropout: Dropout probability of the output.
    """

    def __init__(self, channels: int, heads: int, max_distance: int, dropout: float = 0.0) -> None:
        super().__init__(channels, heads, dropout=dropout)
        if max_distance < 1:
            raise ValueError(f"max_distance must be at least 1, got {max_distance}")
        self.max_distance = max_distance
        self.table = nn.Parameter(torch.empty(heads, max_distance, self.head_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        super().reset_parameters()
        nn.init.normal_(self.table, std=self.head_channels**-0.5)

    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the heads read, ``[B, H, N, D]``; valid tokens come first, others are 0."""
        length = x.size(1)
        query, key, value = self.project(x, x)
        farther = length - self.max_distance  # distances without a row, or rows without a distance
        table = F.pad(self.table, (0, 0, farther, 0))  # [H, N, D]
        scores = (query @ key.mT + skew(query @ table.mT)) * self.head_channels**-0.5
        visible = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        if mask is not None:
            visible = visible & mask[:, None, None]  # [B, 1, N, N]
        # A finite fill: a row of infinities would be NaN, and so would its gradient.
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).masked_fill(~visible, 0.0).to(value.dtype)
        return weights @ value


def skew(relative: Tensor) -> Tensor:
    """Move products of N queries and distances to the keys that are so far away: ``[..., N, N]``.

    Query i of N has its own distance to key j in column ``j − i + N − 1``. A column of zeros in
    front makes each row one longer than the step from a row to the next, so that reading the
    numbers in rows of the old length moves row i by i to the right (section 3.4.1).
    """
    shifted = F.pad(relative, (1, 0)).flatten(-2)[..., relative.size(-2) :]
    return shifted.unflatten(-1, relative.shape[-2:])
