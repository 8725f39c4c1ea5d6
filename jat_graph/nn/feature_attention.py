"""Attention whose weights differ from feature to feature: along a sequence, and from it to one."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.checks.numbers import check_integer
from jat_graph.nn.self_attention import checked_tokens, softmax_where

BOUND = 5.0  # of the logits, which a tanh keeps


class FeatureSelfAttention(torch.nn.Module):
    r"""Masked self-attention of bi-directional blocks: additive, one softmax for each feature.

    .. math::
        \mathbf{s}_i = \sum_{j < i} \mathrm{softmax}_j \left( 5 \tanh \left(
        (\mathbf{W}_1 \mathbf{h}_j + \mathbf{W}_2 \mathbf{h}_i + \mathbf{b}) / 5
        \right) \right) \odot \mathbf{h}_j

    The order is strict, so that the first token reads nothing and gets zeros; backward, tokens read
    what comes later (j > i). L² · C numbers are held meanwhile.

    Reference:
        Shen et al., *Bi-Directional Block Self-Attention for Fast and Memory-Efficient Sequence
        Modeling*, ICLR 2018, Eq. 6 to 8; the released code, ``context_fusion/self_attn.py``.
    """

    def __init__(self, channels: int, backward: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        check_integer("channels", channels, least=1)
        self.backward = backward
        self.source = torch.nn.Linear(channels, channels, bias=False)
        self.target = torch.nn.Linear(channels, channels)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(
        self,
        h: Tensor,  # [..., L, C]
        mask: Tensor,  # tokens that are read, bool [..., L]
    ) -> Tensor:  # [..., L, C]
        """Return what each token reads."""
        dropped = self.dropout(h)
        sums = self.source(dropped).unsqueeze(-3) + self.target(dropped).unsqueeze(-2)
        logits = BOUND * torch.tanh(sums / BOUND)  # [..., L, L, C], the reader first
        triangle = torch.ones(h.size(-2), h.size(-2), dtype=torch.bool, device=h.device)
        order = triangle.triu(1) if self.backward else triangle.tril(-1)
        allowed = order & mask.unsqueeze(-2)  # [..., L, L]
        weights = softmax_where(logits, allowed.unsqueeze(-1), dim=-2)
        # On CUDA, autocast gives weights in float32 whatever the tokens are in.
        return (weights * h.unsqueeze(-3)).sum(dim=-2).to(h.dtype)


class SourceToToken(torch.nn.Module):
    r"""One vector for a sequence: an average of its tokens with weights of every feature's own.

    .. math::
        \mathbf{s} = \sum_j \mathrm{softmax}_j \left(
        \mathbf{W}_2\, \mathrm{elu}(\mathbf{W}_1 \mathbf{x}_j + \mathbf{b}_1) + \mathbf{b}_2
        \right) \odot \mathbf{x}_j

    Args:
        channels: Size C of each token.
        dropout: Dropout probability of the inputs of both linear layers. (default: 0.0)

    Raises:
        ValueError: If a number does not fit.

    Shapes:
        - **input:** tokens ``[B, N, C]``, bool mask ``[B, N]`` *(optional)*
        - **output:** ``[B, C]``

    Reference:
        Shen et al. (2018), Eq. 5; ``multi_dimensional_attention`` of the released code.
    """

    def __init__(self, channels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.channels = check_integer("channels", channels, least=1)
        self.hidden = torch.nn.Linear(channels, channels)
        self.output = torch.nn.Linear(channels, channels)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return one vector for each sequence.

        Args:
            x: Tokens ``[B, N, C]``.
            mask: Bool ``[B, N]``, True for tokens. (default: None, all are)

        Returns:
            ``[B, C]``; zeros for a sequence without a token.

        Raises:
            ValueError: If a shape or dtype does not fit, or a token has a NaN or an infinity.
        """
        x = checked_tokens(x, mask, self.channels)
        logits = self.output(self.dropout(F.elu(self.hidden(self.dropout(x)))))
        return average_features(x, logits, mask)


def average_features(
    x: Tensor,  # [..., L, C]
    logits: Tensor,  # [..., L, C]
    mask: Tensor | None,  # tokens that are read, bool [..., L]
) -> Tensor:  # [..., C]
    """Return the average of tokens by the softmax of logits for every feature."""
    weights = softmax_where(logits, None if mask is None else mask.unsqueeze(-1), dim=-2)
    return (weights * x).sum(dim=-2).to(x.dtype)
