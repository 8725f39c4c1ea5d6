"""Bi-BloSAN: a sentence classifier whose words know their order by self-attention alone.

No recurrence, no convolution and no embedding of places: the words of a block attend to those
before them and, in a second stack, to those after them, blocks do likewise among themselves, and an
average, whose weights differ from feature to feature, makes one vector of the sentence.

Sources:
    Shen et al., *Bi-Directional Block Self-Attention for Fast and Memory-Efficient Sequence
    Modeling*, ICLR 2018: figure 4, and the released code, ``context_fusion/self_attn.py``, for what
    the figure leaves open.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BOUND = 5.0  # of the logits, which a tanh keeps


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
        return self.classifier(F.elu(sentence))


class BlockSelfAttention(nn.Module):
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
        channels: Size of each input sample.
        hidden_channels: Size C of each direction's output.
        block_length: Tokens r of a block; None means ⌈(2n)^(1/3)⌉ for n valid tokens, which needs
            the least memory.
        dropout: Dropout probability of the inputs of all linear layers.
    """

    def __init__(
        self,
        channels: int,
        hidden_channels: int,
        block_length: int | None = 5,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if block_length is not None and block_length < 1:
            raise ValueError(f"block_length must be at least 1, got {block_length}")
        self.block_length = block_length
        self.forward_blocks = DirectedBlocks(channels, hidden_channels, False, dropout)
        self.backward_blocks = DirectedBlocks(channels, hidden_channels, True, dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return every token with what it read, ``[B, N, C_in] -> [B, N, 2 · C]``.

        Forward comes first. Rows are zero where the mask, bool ``[B, N]``, is False.
        """
        blocks, valid, slot = self._cut(x, mask)
        ways = (self.forward_blocks, self.backward_blocks)
        out = torch.cat([way(blocks, valid) for way in ways], dim=-1)  # [B, M, R, 2 · C]
        padded = F.pad(out.flatten(1, 2), (0, 0, 0, 1))  # zeros for padding, [B, M · R + 1, 2 · C]
        return padded.take_along_dim(slot.unsqueeze(-1), 1)

    def _cut(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Cut the valid tokens of each sequence into M blocks of R.

        Returns the tokens ``[B, M, R, C_in]``, which slots hold one ``[B, M, R]``, the others being
        zeros, and the slot of each token ``[B, N]``, M · R for padding.
        """
        mask = x.new_ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        if self.block_length is None:
            length = least_memory(mask.sum(-1, keepdim=True))  # [B, 1]
        else:
            length = mask.new_full((x.size(0), 1), self.block_length, dtype=torch.int64)
        rank = mask.cumsum(-1) - 1
        block = rank.clamp(min=0) // length
        sizes = (x.size(0), int(block.max()) + 1, int(length.max()))  # B, M, R
        slots = sizes[1] * sizes[2]
        slot = (block * sizes[2] + rank % length).masked_fill(~mask, slots)
        # One slot more for padding, which is cut off again.
        blocks = x.new_zeros(x.size(0), slots + 1, x.size(2))
        blocks = blocks.scatter(1, slot.unsqueeze(-1).expand_as(x), x)[:, :-1]
        valid = mask.new_zeros(x.size(0), slots + 1).scatter(1, slot, mask)[:, :-1]
        return blocks.reshape(*sizes, x.size(2)), valid.reshape(sizes), slot


class DirectedBlocks(nn.Module):
    """One direction of :class:`BlockSelfAttention`, on tokens that are cut into blocks."""

    def __init__(self, channels: int, width: int, backward: bool, dropout: float) -> None:
        super().__init__()
        self.hidden = nn.Linear(channels, width)
        self.tokens = FeatureSelfAttention(width, backward, dropout)
        self.pool = nn.Linear(width, width)
        self.block_hidden = nn.Linear(width, width)
        self.blocks = FeatureSelfAttention(width, backward, dropout)
        self.gate = nn.Linear(2 * width, width)
        self.fusion = nn.Linear(3 * width, 2 * width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Return the tokens with their contexts: ``[B, M, R, C_in] -> [B, M, R, C]``."""
        h = F.elu(self.hidden(self.dropout(x)))  # [B, M, R, C]
        near = self.tokens(h, valid)
        vector = average_features(near, self.pool(self.dropout(near)), valid)  # [B, M, C]
        own = F.elu(self.block_hidden(self.dropout(vector)))
        read = self.blocks(own, valid.any(-1))
        gate = self.gate(self.dropout(torch.cat([own, read], dim=-1))).sigmoid()
        far = torch.lerp(read, own, gate).unsqueeze(-2).expand_as(h)
        fused = self.fusion(self.dropout(torch.cat([h, near, far], dim=-1)))
        context, gate = fused.chunk(2, dim=-1)
        return torch.lerp(h, F.elu(context), gate.sigmoid())


class FeatureSelfAttention(nn.Module):
    r"""Masked self-attention of bi-directional blocks: additive, one softmax for each feature.

    .. math::
        \mathbf{s}_i = \sum_{j < i} \mathrm{softmax}_j \left( 5 \tanh \left(
        (\mathbf{W}_1 \mathbf{h}_j + \mathbf{W}_2 \mathbf{h}_i + \mathbf{b}) / 5
        \right) \right) \odot \mathbf{h}_j

    The order is strict, so that the first token reads nothing and gets zeros; backward, tokens read
    what comes later (j > i). L² · C numbers are held meanwhile. Eq. 6 to 8 of the paper.
    """

    def __init__(self, channels: int, backward: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.backward = backward
        self.source = nn.Linear(channels, channels, bias=False)
        self.target = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        """Return what each token reads, ``[..., L, C]``, of those in the mask ``[..., L]``."""
        dropped = self.dropout(h)
        sums = self.source(dropped).unsqueeze(-3) + self.target(dropped).unsqueeze(-2)
        logits = BOUND * torch.tanh(sums / BOUND)  # [..., L, L, C], the reader first
        triangle = torch.ones(h.size(-2), h.size(-2), dtype=torch.bool, device=h.device)
        order = triangle.triu(1) if self.backward else triangle.tril(-1)
        allowed = order & mask.unsqueeze(-2)  # [..., L, L]
        weights = softmax_where(logits, allowed.unsqueeze(-1))
        # On CUDA, autocast gives weights in float32 whatever the tokens are in.
        return (weights * h.unsqueeze(-3)).sum(dim=-2).to(h.dtype)


class SourceToToken(nn.Module):
    r"""One vector for a sequence: an average of its tokens with weights of every feature's own.

    .. math::
        \mathbf{s} = \sum_j \mathrm{softmax}_j \left(
        \mathbf{W}_2\, \mathrm{elu}(\mathbf{W}_1 \mathbf{x}_j + \mathbf{b}_1) + \mathbf{b}_2
        \right) \odot \mathbf{x}_j

    Eq. 5 of the paper; ``multi_dimensional_attention`` of the released code.
    """

    def __init__(self, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(channels, channels)
        self.output = nn.Linear(channels, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return one vector for each sequence, ``[B, N, C] -> [B, C]``; zeros without a token."""
        x = x if mask is None else x.masked_fill(~mask.unsqueeze(-1), 0.0)
        logits = self.output(self.dropout(F.elu(self.hidden(self.dropout(x)))))
        return average_features(x, logits, mask)


def average_features(x: Tensor, logits: Tensor, mask: Tensor | None) -> Tensor:
    """Return the average of tokens by the softmax of logits: ``[..., L, C] -> [..., C]``."""
    weights = softmax_where(logits, None if mask is None else mask.unsqueeze(-1))
    return (weights * x).sum(dim=-2).to(x.dtype)


def softmax_where(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """Return the softmax over the allowed tokens; where there is none, zeros and no gradient."""
    if allowed is None:
        return logits.softmax(-2)
    # A finite fill: a row of infinities would be NaN, and so would its gradient.
    filled = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
    return filled.softmax(-2).masked_fill(~allowed, 0.0)


def least_memory(count: Tensor) -> Tensor:
    """Return the smallest r ≥ 1 with r³ ≥ 2n, exactly, of each n."""
    near = (2 * count).double().pow(1 / 3).round().long()
    return (near + (near**3 < 2 * count)).clamp(min=1)
