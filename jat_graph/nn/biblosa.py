"""Bi-directional block self-attention: order and far tokens, at the cost of short blocks."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.checks.numbers import check_integer
from jat_graph.nn.feature_attention import FeatureSelfAttention, average_features
from jat_graph.nn.self_attention import checked_tokens


class BlockSelfAttention(torch.nn.Module):
    r"""Self-attention within blocks and among blocks, forward and backward side by side.

    Each direction, with its own parameters, maps the tokens to h = elu(W x + b) and cuts them into
    blocks of r. Within a block every token reads those before it (after it),
    :class:`FeatureSelfAttention`; each block becomes one vector by source-to-token attention; a
    block reads the blocks before it (after it) in the same way, a gate mixing in what it was; and a
    token takes in what it read, **s**, and its block, **e**, by the gate

    .. math::
        \mathbf{g} \odot \mathrm{elu}(\mathbf{f}) + (1 - \mathbf{g}) \odot \mathbf{h}, \qquad
        \mathbf{f} \,\Vert\, \mathrm{logit}(\mathbf{g}) =
        \mathbf{W} (\mathbf{h} \,\Vert\, \mathbf{s} \,\Vert\, \mathbf{e}) + \mathbf{b}

    Blocks are cut among the valid tokens, and those without one take no part, so that padding
    changes nothing; in the released code it moves the blocks, and the backward direction reads
    blocks of padding. There is no causal form: a block's vector knows all its tokens.

    Args:
        channels: Size C of each input sample.
        hidden_channels: Size of each direction's output. (default: None, which means C)
        block_length: Tokens r of a block; None means ⌈(2n)^(1/3)⌉ for n valid tokens, which needs
            the least memory. (default: 5)
        dropout: Dropout probability of the inputs of all linear layers. (default: 0.0)

    Raises:
        ValueError: If a number does not fit.

    Shapes:
        - **input:** tokens ``[B, N, C]``, bool mask ``[B, N]`` *(optional)*
        - **output:** ``[B, N, 2 · hidden_channels]``

    Reference:
        Shen et al., *Bi-Directional Block Self-Attention for Fast and Memory-Efficient Sequence
        Modeling*, ICLR 2018; the released code, ``context_fusion/self_attn.py``.
    """

    def __init__(
        self,
        channels: int,
        hidden_channels: int | None = None,
        block_length: int | None = 5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.channels = check_integer("channels", channels, least=1)
        hidden_channels = channels if hidden_channels is None else hidden_channels
        self.hidden_channels = check_integer("hidden_channels", hidden_channels, least=1)
        if block_length is not None:
            check_integer("block_length", block_length, least=1)
        self.block_length = block_length
        self.forward_blocks = DirectedBlocks(channels, hidden_channels, False, dropout)
        self.backward_blocks = DirectedBlocks(channels, hidden_channels, True, dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return every token with what it read in both directions.

        Args:
            x: Tokens ``[B, N, C]``.
            mask: Bool ``[B, N]``, True for tokens; what the others hold is ignored. (default: None,
                all are)

        Returns:
            ``[B, N, 2 · hidden_channels]``, forward first; zeros where the mask is False.

        Raises:
            ValueError: If a shape or dtype does not fit, or a token has a NaN or an infinity.
        """
        blocks = _cut(checked_tokens(x, mask, self.channels), mask, self.block_length)
        ways = (self.forward_blocks, self.backward_blocks)
        out = torch.cat([way(blocks.tokens, blocks.valid) for way in ways], dim=-1)
        return _join(out, blocks.slot)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.channels}, hidden_channels={self.hidden_channels}, "
            f"block_length={self.block_length})"
        )


class DirectedBlocks(torch.nn.Module):
    """One direction of :class:`BlockSelfAttention`, on tokens that are cut into blocks."""

    def __init__(self, channels: int, hidden_channels: int, backward: bool, dropout: float) -> None:
        super().__init__()
        width = hidden_channels
        self.hidden = torch.nn.Linear(channels, width)
        self.tokens = FeatureSelfAttention(width, backward, dropout)
        self.pool = torch.nn.Linear(width, width)
        self.block_hidden = torch.nn.Linear(width, width)
        self.blocks = FeatureSelfAttention(width, backward, dropout)
        self.gate = torch.nn.Linear(2 * width, width)
        self.fusion = torch.nn.Linear(3 * width, 2 * width)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,  # M blocks of R, [B, M, R, C_in]
        valid: Tensor,  # tokens that are there, bool [B, M, R]
    ) -> Tensor:  # [B, M, R, C]
        """Return the tokens with their contexts."""
        h = F.elu(self.hidden(self.dropout(x)))  # [B, M, R, C]
        near = self.tokens(h, valid)
        vector = average_features(near, self.pool(self.dropout(near)), valid)  # [B, M, C]
        far = self._read_blocks(vector, valid.any(-1)).unsqueeze(-2).expand_as(h)
        fused = self.fusion(self.dropout(torch.cat([h, near, far], dim=-1)))
        context, gate = fused.chunk(2, dim=-1)
        return torch.lerp(h, F.elu(context), gate.sigmoid())

    def _read_blocks(self, vector: Tensor, valid: Tensor) -> Tensor:
        """Return each block's vector with what it read of the others: [B, M, C]."""
        h = F.elu(self.block_hidden(self.dropout(vector)))
        far = self.blocks(h, valid)
        gate = self.gate(self.dropout(torch.cat([h, far], dim=-1))).sigmoid()
        return torch.lerp(far, h, gate)


class _Blocks(NamedTuple):
    """Tokens in blocks, and where each token of the sequence went."""

    tokens: Tensor  # [B, M, R, C]
    valid: Tensor  # slots that hold a token, bool [B, M, R]
    slot: Tensor  # of each token, [B, N]; M · R for padding


def _cut(x: Tensor, mask: Tensor | None, block_length: int | None) -> _Blocks:
    """Cut the valid tokens of each sequence into blocks; slots that stay empty hold zeros."""
    mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
    if block_length is None:
        length = least_memory(mask.sum(-1, keepdim=True))  # [B, 1]
    else:
        length = mask.new_full((x.size(0), 1), block_length, dtype=torch.int64)
    rank = mask.cumsum(-1) - 1
    block = rank.clamp(min=0) // length
    sizes = (int(block.max()) + 1, int(length.max()))  # M, R
    slot = block * sizes[1] + rank % length
    slot = slot.masked_fill(~mask, sizes[0] * sizes[1])  # one more for padding, cut off again
    tokens = x.new_zeros(x.size(0), sizes[0] * sizes[1] + 1, x.size(2))
    tokens = tokens.scatter(1, slot.unsqueeze(-1).expand_as(x), x)[:, :-1]
    valid = mask.new_zeros(tokens.size(0), tokens.size(1) + 1).scatter(1, slot, mask)[:, :-1]
    batch, width = x.size(0), x.size(2)
    return _Blocks(tokens.reshape(batch, *sizes, width), valid.reshape(batch, *sizes), slot)


def _join(blocks: Tensor, slot: Tensor) -> Tensor:
    """Bring tokens back to where they were, and zeros where there was padding: [B, N, C]."""
    padded = F.pad(blocks.flatten(1, 2), (0, 0, 0, 1))  # [B, M · R + 1, C]
    return padded.take_along_dim(slot.unsqueeze(-1), 1)


def least_memory(count: Tensor) -> Tensor:
    """Return the smallest r ≥ 1 with r³ ≥ 2n, exactly, of each n."""
    near = (2 * count).double().pow(1 / 3).round().long()
    return (near + (near**3 < 2 * count)).clamp(min=1)
