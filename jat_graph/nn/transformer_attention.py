"""The three attentions of a transformer: an encoder's, a decoder's, and from one to the other."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from jat_graph.jumps.config import JatConfig
from jat_graph.nn.jump_self_attention import JumpSelfAttention
from jat_graph.nn.self_attention import MultiHeadProjections, clean_tokens


class EncoderSelfAttention(JumpSelfAttention):
    """Self-attention of an encoder: every token reads all valid ones, some heads jumping.

    :class:`JumpSelfAttention`, whose arguments and shapes these are, where jump heads are a choice:
    without a ``config`` no head jumps.

    Reference:
        Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, section 3.2.3; Eq. 7 and 9 of the
        JAT paper.
    """

    _is_decoder = False

    def __init__(
        self,
        channels: int,
        heads: int,
        config: JatConfig | None = None,
        head_channels: int | None = None,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        options = (head_channels, qkv_bias, attn_out_bias, dropout)
        super().__init__(channels, heads, config, *options, is_causal=self._is_decoder)


class DecoderSelfAttention(EncoderSelfAttention):
    """Masked self-attention of a decoder: a token reads itself and those before it.

    Arguments and shapes are those of :class:`EncoderSelfAttention`. The votes keep to the same
    rule, so that no token depends on later ones, whatever the number of hops. The keys that vote
    must be chosen without looking ahead: ``key_selection="all"``, or ``"strided"`` with a
    ``key_step``; and ``vote_rate`` raises.

    Reference:
        Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, section 3.2.3; section 3.2.1 of
        the JAT paper.
    """

    _is_decoder = True


class EncoderDecoderAttention(MultiHeadProjections):
    """Attention of a decoder's tokens to an encoder's.

    No head jumps here: a jump joins two tokens that vote for each other's keys, which is defined
    for the tokens of one sequence only.

    Args:
        channels, heads, head_channels, qkv_bias, attn_out_bias, dropout: As for
            :class:`SelfAttention`.
        memory_channels: Size of the encoder's samples. (default: None, which means ``channels``)

    Raises:
        ValueError: If a size does not fit.

    Shapes:
        - **input:** decoder's tokens ``[B, N, C]``, encoder's ``[B, M, C_memory]``, with bool masks
          ``[B, N]`` and ``[B, M]`` *(optional)*
        - **output:** ``[B, N, C]``

    Reference:
        Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, section 3.2.3.
    """

    shown = ("head_channels", "memory_channels")

    def __init__(
        self,
        channels: int,
        heads: int,
        memory_channels: int | None = None,
        head_channels: int | None = None,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        options = (head_channels, qkv_bias, attn_out_bias, dropout)
        super().__init__(channels, heads, *options, memory_channels)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Return attention of every token of ``x`` to the valid tokens of ``memory``.

        Args:
            x, mask: The decoder's tokens, and which are valid. (default: None, all are)
            memory, memory_mask: The encoder's, likewise.

        Returns:
            Token features ``[B, N, C]``; zeros where the mask is False. What a token reads from a
            memory without a valid token is 0, too.

        Raises:
            ValueError: If a shape or dtype does not fit, or a valid token has a NaN or an infinity.
        """
        x = clean_tokens(x, mask, self.channels)
        memory = clean_tokens(
            memory, memory_mask, self.memory_channels, names=("memory", "memory_mask")
        )
        if x.size(0) != memory.size(0):
            raise ValueError(f"memory must have batch {x.size(0)} like x, got {memory.size(0)}")
        visible = None if memory_mask is None else memory_mask[:, None, None]  # [B, 1, 1, M]
        return self.merge(F.scaled_dot_product_attention(*self.project(x, memory), visible), mask)
