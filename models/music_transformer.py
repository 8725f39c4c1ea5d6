"""Music Transformer: a language model of notes whose attention knows how far apart they are.

Each layer's scores have a learned term for the distance between query and key, so that "four notes
ago" is the same everywhere in a piece. With ``relative=False`` the same model has ordinary
attention, for comparison; both know the absolute place from sinusoids.

Sources:
    Huang et al., *Music Transformer: Generating Music with Long-Term Structure*, ICLR 2019.
    Shaw et al., *Self-Attention with Relative Position Representations*, NAACL 2018, for distances
    that are clipped.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jat_graph.nn import DecoderSelfAttention, SequenceSelfAttention
from models.blocks import LanguageModel, TransformerLayer


class MusicTransformer(LanguageModel):
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
        def make_layer() -> nn.Module:
            if not relative:
                attention: nn.Module = DecoderSelfAttention(channels, heads, dropout=dropout)
            else:
                options: dict[str, Any] = {"is_causal": True, "far": "zero", "dropout": dropout}
                attention = RelativeAttention(channels, heads, max_distance, **options)
            return TransformerLayer(attention, channels, dropout, nn.ReLU)

        super().__init__(vocabulary_size, channels, (make_layer() for _ in range(layers)))


class RelativeAttention(SequenceSelfAttention):
    r"""Multi-head self-attention with a learned score for each distance.

    .. math::
        \mathrm{softmax}\left((\mathbf{Q} \mathbf{K}^{\top} + \mathbf{S}^{rel}) / \sqrt{D} \right)
        \mathbf{V}, \qquad S^{rel}_{ij} = \mathbf{q}_i \cdot \mathbf{E}_{i - j}

    Each head has its own table E. Its row r is the distance ``max_distance − 1 − r``, so that a
    bidirectional table goes on to the later tokens after the middle. The products with E are
    brought into place by skewing: the relative term needs O(L · D) memory beside the scores.

    With ``block`` a token reads its own block and the one before, and without ``is_causal`` the one
    after, too; memory then grows linearly with L. Places count valid tokens.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H of D = C / H features.
        max_distance: How many distances, from 0 on, have a row of their own.
        is_causal: Whether a token reads itself and earlier ones only; the table then has
            ``max_distance`` rows, else ``2 * max_distance - 1``.
        far: ``"clip"`` gives farther tokens the row of the farthest, as Shaw et al. do; ``"zero"``
            gives them no relative score, as Tensor2Tensor does.
        block: Tokens of a block; None means that every token reads all.
        dropout: Dropout probability of the output.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        max_distance: int,
        is_causal: bool = False,
        far: str = "clip",
        block: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, heads, dropout=dropout)
        if min(max_distance, 1 if block is None else block) < 1:
            raise ValueError(
                f"max_distance and block must be at least 1, got {max_distance} and {block}"
            )
        if far not in ("clip", "zero"):
            raise ValueError(f"far must be clip or zero, got {far!r}")
        self.max_distance, self.is_causal = max_distance, is_causal
        self.far, self.block = far, block
        rows = max_distance if is_causal else 2 * max_distance - 1
        self.table = nn.Parameter(torch.empty(heads, rows, self.head_channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        super().reset_parameters()
        nn.init.normal_(self.table, std=self.head_channels**-0.5)

    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the heads read, ``[B, H, N, D]``; valid tokens come first, others are 0."""
        length = x.size(1)
        block = length if self.block is None else min(self.block, length)
        before = 0 if block == length else block
        after = 0 if self.is_causal else before
        query, key, value = self.project(x, x)
        queries = windows(query, block, 0, 0)  # [B, H, blocks, block, D]
        keys, values = (windows(tensor, block, before, after) for tensor in (key, value))
        real = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        visible = windows(real[:, None, :, None], block, before, after).mT  # [B, 1, blocks, 1, W]
        if self.is_causal:
            window = torch.arange(before + block, device=x.device)
            visible = visible & (window <= window[before:, None])  # [B, 1, blocks, block, W]
        relative = queries @ self._rows(block, before, after).mT  # [B, H, blocks, block, distances]
        scores = (queries @ keys.mT + skew(relative, keys.size(-2))) * self.head_channels**-0.5
        # A finite fill: a row of infinities would be NaN, and so would its gradient.
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1).masked_fill(~visible, 0.0).to(values.dtype)
        return (weights @ values).flatten(2, 3)[:, :, :length]

    def _rows(self, block: int, before: int, after: int) -> Tensor:
        """Return E of every distance between a block and its keys, ``[H, 1, distances, D]``."""
        nearest = 0 if self.is_causal else 1 - block - after
        distance = torch.arange(before + block - 1, nearest - 1, -1, device=self.table.device)
        row = self.max_distance - 1 - distance
        table = self.table[:, row.clamp(0, self.table.size(1) - 1)]
        if self.far == "zero":
            outside = distance.abs() >= self.max_distance
            table = table.masked_fill(outside.unsqueeze(-1), 0.0)
        return table.unsqueeze(1)


def skew(relative: Tensor, num_keys: int) -> Tensor:
    """Move products of queries and distances to the keys that are so far away.

    Query i of n has its own distance to key j in column ``j − i + n − 1``. A column of zeros in
    front makes each row one longer than the step from a row to the next, so that reading the
    numbers in rows of the old length moves row i by i to the right (section 3.4.1):
    ``[..., n, distances] -> [..., n, num_keys]``.
    """
    queries, distances = relative.shape[-2:]
    shifted = F.pad(relative, (1, 0)).flatten(-2)[..., queries:]
    return shifted.view(*shifted.shape[:-1], queries, distances)[..., :num_keys]


def windows(tensor: Tensor, block: int, before: int, after: int) -> Tensor:
    """Cut tokens into blocks with neighbours: ``[B, H, N, D] -> [B, H, blocks, window, D]``."""
    missing = -tensor.size(2) % block
    padded = F.pad(tensor, (0, 0, before, missing + after))
    return padded.unfold(2, before + block + after, block).mT
