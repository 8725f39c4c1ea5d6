"""T-DMCA: a language model whose layers look near and far in turns.

A local layer attends within blocks of tokens. A compressed layer attends to everything before,
which a strided convolution of keys and values has made a third as long. Together they read far for
less than ordinary attention costs.

Sources:
    Liu et al., *Generating Wikipedia by Summarizing Long Sequences*, ICLR 2018: the transformer
    decoder with memory-compressed attention, section 4.2.4. The first token and the causal rule are
    those of Tensor2Tensor, which ignores padding and drops the tail.
"""

from __future__ import annotations

from itertools import cycle, islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jat_graph import JatConfig
from jat_graph.nn import JumpSelfAttention, SequenceSelfAttention
from jat_graph.patterns import LocalBlocks
from models.blocks import LanguageModel

WINDOW = 3  # tokens that the convolution makes one


class MemoryCompressedModel(LanguageModel):
    """Logits of the next token at every place.

    Args:
        vocabulary_size: Number of different tokens V.
        channels, heads: Size C of each token's features, and heads of a layer.
        layers: Number of layers: local, compressed, local …; the paper has five.
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
        local = JatConfig(heads=1, hop_weights=(1,), pattern=LocalBlocks(block))

        def near() -> nn.Module:
            return JumpSelfAttention(channels, heads, local, dropout=dropout, is_causal=True)

        def far() -> nn.Module:
            return MemoryCompressedAttention(channels, heads, dropout=dropout)

        attentions = (make() for make in islice(cycle((near, far)), layers))
        super().__init__(vocabulary_size, attentions, channels, dropout, nn.ReLU)


class MemoryCompressedAttention(SequenceSelfAttention):
    r"""Causal multi-head self-attention to what a convolution makes of every three tokens.

    .. math::
        \mathrm{softmax}\left(\mathbf{Q} \mathbf{K}^{\top} / \sqrt{D} \right) \mathbf{V},
        \qquad \mathbf{K}, \mathbf{V} \text{ from } \big[\mathbf{x}_0 \,\Vert\,
        \mathrm{Conv}(\mathbf{x})\big]

    The convolution turns a window of three tokens into one slot of the memory. The memory begins
    with the first token itself, so that there is always something to read. Places count valid
    tokens: a slot exists where its window begins with a valid token, and padding adds nothing to
    it.

    A query reads the first token, and the slots whose whole window lies before it. So the last
    tokens before a query, and the query itself, reach it only past this layer: take turns with
    layers that look near, as :class:`MemoryCompressedModel` does.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H of D = C / H features.
        dropout: Dropout probability of the output.
    """

    def __init__(self, channels: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__(channels, heads, dropout=dropout)
        self.compress = nn.Conv1d(channels, channels, WINDOW, WINDOW)

    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the heads read, ``[B, H, N, D]``; valid tokens come first, others are 0."""
        index = torch.arange(x.size(1), device=x.device)
        starts = index[::WINDOW]  # M = ⌈N / 3⌉ slots
        padded = F.pad(x.mT, (0, WINDOW - 1))  # the last window may reach past the end
        slots = self.compress(padded).mT  # [B, M, C]
        memory = torch.cat([x[:, :1], slots], dim=1)  # [B, 1 + M, C]
        ends = F.pad(starts + WINDOW, (1, 0))
        visible = ends <= index[:, None]  # [N, 1 + M]
        if mask is not None:
            begins = F.pad(starts, (1, 0)) < mask.sum(-1, keepdim=True)  # [B, 1 + M]
            visible = visible & begins[:, None, None]  # [B, 1, N, 1 + M]
        return F.scaled_dot_product_attention(*self.project(x, memory), visible)
