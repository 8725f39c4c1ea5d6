"""A stack of layers that look near and far in turns: local blocks and compressed memory."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.checks.numbers import check_integer
from jat_graph.config import JatConfig
from jat_graph.nn.memory_compressed import MemoryCompressedAttention
from jat_graph.nn.self_attention import SelfAttention, checked_tokens
from jat_graph.nn.transformer_attention import DecoderSelfAttention
from jat_graph.patterns import LocalBlocks


class TDMCA(torch.nn.Module):
    """The transformer decoder with memory-compressed attention, T-DMCA.

    Layers 0, 2, 4 … attend within blocks of tokens, layers 1, 3 … to a memory that a strided
    convolution has shortened; the paper's five are local, compressed, local, compressed, local.
    Each layer is attention and then a feed-forward network four times as wide; both are normalised
    before and added to what came in, and the last output is normalised again. No token depends on
    later ones. Nothing here says where a token stands: add that to the input.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H in each layer.
        layers: Number of layers. (default: 5)
        block: Tokens of a block in the local layers. (default: 256)
        kernel_size: Tokens of a window in the compressed layers. (default: 3)
        stride: Distance of these windows. (default: 3)
        dropout: Dropout probability after attention and feed-forward network. (default: 0.0)

    Raises:
        ValueError: If a size does not fit.

    Shapes:
        - **input:** token features ``[B, N, C]`` with a bool mask ``[B, N]`` *(optional)*
        - **output:** ``[B, N, C]``

    Reference:
        Liu et al., *Generating Wikipedia by Summarizing Long Sequences*, ICLR 2018, section 4.2.4.
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
        self.channels = check_integer("channels", channels, least=1)
        self.layers = torch.nn.ModuleList()
        local = JatConfig(heads=1, hop_weights=(1,), pattern=LocalBlocks(block))
        for layer in range(check_integer("layers", layers, least=1)):
            attention: SelfAttention = (
                DecoderSelfAttention(channels, heads, local, dropout=dropout)
                if layer % 2 == 0
                else MemoryCompressedAttention(
                    channels, heads, kernel_size, stride, is_causal=True, dropout=dropout
                )
            )
            self.layers.append(_Layer(attention, channels, dropout))
        self.norm = torch.nn.LayerNorm(channels)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the features of every token after all layers.

        Args:
            x: Token features ``[B, N, C]``.
            mask: Bool ``[B, N]``, True for valid tokens. (default: None, all are)

        Returns:
            Features; zeros where the mask is False.

        Raises:
            ValueError: If a shape or dtype does not fit, or a valid token has a NaN or an infinity.

        Shapes:
            - **output:** ``[B, N, C]``
        """
        x = checked_tokens(x, mask, self.channels)
        for layer in self.layers:
            x = layer(x, mask)
        x = self.norm(x)
        return x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)


class _Layer(torch.nn.Module):
    """Attention and a feed-forward network, each added to what came in."""

    def __init__(self, attention: SelfAttention, channels: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = torch.nn.LayerNorm(channels)
        self.attention = attention
        self.feed_forward = torch.nn.Sequential(
            torch.nn.LayerNorm(channels),
            torch.nn.Linear(channels, 4 * channels),
            torch.nn.ReLU(),
            torch.nn.Linear(4 * channels, channels),
            torch.nn.Dropout(dropout),
        )

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), mask)
        out: Tensor = x + self.feed_forward(x)
        return out
