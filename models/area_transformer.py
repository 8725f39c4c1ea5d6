"""Area transformer: a language model that reads spans of characters as well as single ones.

A character says little; a syllable or a word says more. Each layer attends to all spans of up to
``max_width`` characters before the next one: the key of a span is the mean of its keys, its value
the sum of its values, so that spans cost no parameters. With ``max_width=1`` the same model has
ordinary attention, for comparison.

Source:
    Li et al., *Area Attention*, ICML 2019, which gains most on characters. Areas of a grid, of a
    memory, and keys that learn how large an area is, are not here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.nn import SequenceSelfAttention
from models.blocks import LanguageModel


class AreaTransformer(LanguageModel):
    """Logits of the next token at every place.

    Args:
        vocabulary_size: Number of different tokens V.
        max_width: Most tokens of a span.
        channels, heads, layers: Size C of each token's features, heads of a layer, and layers.
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
        attentions = (
            AreaAttention(channels, heads, max_width, dropout=dropout) for _ in range(layers)
        )
        super().__init__(vocabulary_size, attentions, channels, dropout)


class AreaAttention(SequenceSelfAttention):
    r"""Causal multi-head attention over areas: all spans of neighbouring tokens.

    .. math::
        \mathrm{softmax}\left(\mathbf{q}\, \mathbf{k}_r^{\top} / \sqrt{D} \right)
        \mathbf{v}_r, \qquad \mathbf{k}_r = \frac{1}{|r|} \sum_{i \in r} \mathbf{k}_i, \qquad
        \mathbf{v}_r = \sum_{i \in r} \mathbf{v}_i

    for every span r of at most ``max_width`` tokens. A span can be read only if all its tokens can:
    if none of them is later than the query, or padding.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H of D = C / H features.
        max_width: Most tokens of a span; 1 is ordinary attention.
        dropout: Dropout probability of the attention weights and of the output.
    """

    def __init__(self, channels: int, heads: int, max_width: int, dropout: float = 0.0) -> None:
        super().__init__(channels, heads, dropout=dropout)
        if max_width < 1:
            raise ValueError(f"max_width must be at least 1, got {max_width}")
        self.max_width = max_width

    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = self.project(x, x)  # [B, H, L, D]
        length = x.size(1)
        visible = x.new_ones(1, length, length, dtype=torch.bool).tril()
        if mask is not None:
            visible = visible & mask.unsqueeze(1)  # [B, L, L]
        hidden = (~visible).unsqueeze(-1).int()
        readable = self._sums(hidden).squeeze(-1) == 0  # [1 or B, L, A]
        widths = self._sums(x.new_ones(length, 1, dtype=torch.float32))  # [A, 1]
        wide = torch.promote_types(x.dtype, torch.float32)
        keys = (self._sums(key.to(wide)) / widths).to(key.dtype)  # [B, H, A, D]
        values = self._sums(value.to(wide)).to(value.dtype)
        dropout = self.dropout.p if self.training else 0.0
        return F.scaled_dot_product_attention(query, keys, values, readable.unsqueeze(1), dropout)

    def _sums(self, x: Tensor) -> Tensor:  # [..., L, F] to [..., A, F]
        """Add up each span, by width, then place; running sums of long texts would lose digits."""
        sums = [x]
        for width in range(2, min(self.max_width, x.size(-2)) + 1):
            sums.append(sums[-1][..., :-1, :] + x[..., width - 1 :, :])
        return torch.cat(sums, dim=-2)
