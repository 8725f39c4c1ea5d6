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

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jat_graph import JatConfig
from jat_graph.nn import DecoderSelfAttention, SequenceSelfAttention
from jat_graph.patterns import LocalBlocks
from models.blocks import LanguageModel, TransformerLayer


class MemoryCompressedModel(LanguageModel):
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
        # Its weights are drawn after the embedding.
        decoders = (TDMCA(channels, heads, layers, block, dropout=dropout) for _ in range(1))
        super().__init__(vocabulary_size, channels, decoders)
        self.norm = nn.Identity()  # the decoder has its own


class TDMCA(nn.Module):
    """The transformer decoder with memory-compressed attention.

    Layers 0, 2, 4 … attend within blocks of tokens, layers 1, 3 … to a memory that a strided
    convolution has shortened; the paper's five are local, compressed, local, compressed, local. No
    token depends on later ones. Nothing here says where a token stands: add that to the input.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H in each layer.
        layers: Number of layers.
        block: Tokens of a block in the local layers.
        kernel_size: Tokens of a window in the compressed layers.
        stride: Distance of these windows.
        dropout: Dropout probability after attention and feed-forward network.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        layers: int = 5,
        block: int = 256,
        kernel_size: int = 3,
        stride: int = 3,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        local = JatConfig(heads=1, hop_weights=(1,), pattern=LocalBlocks(block))
        self.layers = nn.ModuleList()
        for layer in range(layers):
            attention: nn.Module
            if layer % 2 == 0:
                attention = DecoderSelfAttention(channels, heads, local, dropout=dropout)
            else:
                attention = MemoryCompressedAttention(
                    channels, heads, kernel_size, stride, is_causal=True, dropout=dropout
                )
            self.layers.append(TransformerLayer(attention, channels, dropout, nn.ReLU))
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return features after all layers, ``[B, N, C]``; zeros where the mask is False."""
        hidden = x.new_zeros(x.shape[:2], dtype=torch.bool) if mask is None else ~mask
        x = x.masked_fill(hidden.unsqueeze(-1), 0.0)
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x).masked_fill(hidden.unsqueeze(-1), 0.0)


class MemoryCompressedAttention(SequenceSelfAttention):
    r"""Multi-head self-attention whose keys and values come from every third token, or so.

    .. math::
        \mathrm{softmax}\left(\mathbf{Q} \mathbf{K}^{\top} / \sqrt{D} \right) \mathbf{V},
        \qquad \mathbf{K}, \mathbf{V} \text{ from } \big[\mathbf{x}_0 \,\Vert\,
        \mathrm{Conv}(\mathbf{x})\big]

    The convolution turns a window of k tokens into one slot of the memory, a window at every
    multiple of the stride. The memory begins with the first token itself, so that there is always
    something to read. Places count valid tokens: a slot exists where its window begins with a valid
    token, and padding adds nothing to it. The last window may reach past the end; its slot has what
    there is.

    Causally a query reads the first token, and the slots whose whole window lies before it. So the
    last tokens before a query, and the query itself, reach it only past this layer: take turns with
    layers that look near, as :class:`TDMCA` does.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H of D = C / H features.
        kernel_size: Length k of a window.
        stride: Distance of the windows, at most k.
        is_causal: Whether a token reads nothing that depends on later ones.
        dropout: Dropout probability of the output.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        kernel_size: int = 3,
        stride: int = 3,
        is_causal: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, heads, dropout=dropout)
        if not 1 <= stride <= kernel_size:
            raise ValueError(
                f"stride must be from 1 to kernel_size={kernel_size}, or tokens between windows "
                f"are lost; got {stride}"
            )
        self.kernel_size, self.stride, self.is_causal = kernel_size, stride, is_causal
        self.compress = nn.Conv1d(channels, channels, kernel_size, stride)

    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the heads read, ``[B, H, N, D]``; valid tokens come first, others are 0."""
        length = x.size(1)
        starts = torch.arange(0, length, self.stride, device=x.device)  # M = ⌈N / stride⌉ slots
        padded = F.pad(x.mT, (0, int(starts[-1]) + self.kernel_size - length))  # [B, C, reach]
        slots = self.compress(padded)[..., : len(starts)].mT  # [B, M, C]
        memory = torch.cat([x[:, :1], slots], dim=1)  # [B, 1 + M, C]
        first, visible = starts.new_zeros(1), None
        if self.is_causal:
            ends = torch.cat([first, starts + self.kernel_size])
            index = torch.arange(length, device=x.device).unsqueeze(-1)
            visible = (ends <= index)[None, None]  # [1, 1, N, 1 + M]
        if mask is not None:
            begins = torch.cat([first, starts]) < mask.sum(-1, keepdim=True)  # [B, 1 + M]
            begins = begins[:, None, None]  # [B, 1, 1, 1 + M]
            visible = begins if visible is None else begins & visible
        return F.scaled_dot_product_attention(*self.project(x, memory), visible)
