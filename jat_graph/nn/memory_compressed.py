"""Self-attention to a memory that a strided convolution has shortened."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.checks.numbers import check_flag, check_integer
from jat_graph.nn.self_attention import SequenceSelfAttention


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
        heads: Number of heads H.
        kernel_size: Length k of a window. (default: 3)
        stride: Distance of the windows, at most k. (default: 3)
        is_causal: A token reads nothing that depends on later ones. (default: False)
        head_channels: Size D of each head. (default: None, which means ``channels // heads``)
        qkv_bias: Add a bias to queries, keys and values. (default: False)
        attn_out_bias: Add a bias to the output. (default: True)
        dropout: Dropout probability of the output. (default: 0.0)

    Raises:
        ValueError: If a size does not fit.

    Shapes:
        - **input:** token features ``[B, N, C]`` with a bool mask ``[B, N]`` *(optional)*, or
          ``[N_total, C]`` with a batch vector ``[N_total]`` *(optional)*
        - **output:** as the input

    Reference:
        Liu et al., *Generating Wikipedia by Summarizing Long Sequences*, ICLR 2018; the first token
        and the causal rule as in Tensor2Tensor, which ignores padding and drops the tail.
    """

    shown = ("kernel_size", "stride", "is_causal")

    def __init__(
        self,
        channels: int,
        heads: int,
        kernel_size: int = 3,
        stride: int = 3,
        is_causal: bool = False,
        head_channels: int | None = None,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels, heads, head_channels, qkv_bias, attn_out_bias, dropout)
        self.kernel_size = check_integer("kernel_size", kernel_size, least=1)
        self.stride = check_integer("stride", stride, least=1)
        if stride > kernel_size:
            raise ValueError(
                f"stride must be at most kernel_size={kernel_size}, or tokens between the windows "
                f"are lost; got {stride}"
            )
        self.is_causal = check_flag("is_causal", is_causal)
        self.compress = torch.nn.Conv1d(channels, channels, kernel_size, stride)

    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        query, key, value = self.project(x, self._compress(x))
        visible = self._visible(x.size(1), mask, x.device)
        return F.scaled_dot_product_attention(query, key, value, visible)

    def _compress(self, x: Tensor) -> Tensor:
        """Return the first token and the slots, ``[B, 1 + M, C]``, M = ⌈N / stride⌉."""
        length = x.size(1)
        reach = (length - 1) // self.stride * self.stride + self.kernel_size  # of the last window
        padded = F.pad(x.mT, (0, reach - length))  # [B, C, reach]
        slots: Tensor = self.compress(padded)[..., : -(-length // self.stride)]
        return torch.cat([x[:, :1], slots.mT], dim=1)

    def _visible(self, length: int, mask: Tensor | None, device: torch.device) -> Tensor | None:
        """Return which slots a query reads, ``[B|1, 1, N|1, 1 + M]``, or None for all of them."""
        starts = torch.arange(0, length, self.stride, device=device)
        first = starts.new_zeros(1)
        visible = None
        if self.is_causal:
            ends = torch.cat([first, starts + self.kernel_size])
            visible = (ends <= torch.arange(length, device=device).unsqueeze(-1))[None, None]
        if mask is None:
            return visible
        begins = torch.cat([first, starts]) < mask.sum(-1, keepdim=True)  # [B, 1 + M]
        begins = begins[:, None, None]
        return begins if visible is None else begins & visible
