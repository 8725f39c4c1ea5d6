"""Attention layers whose heads do not jump, and what those that do have in common with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.inits import reset
from torch_geometric.utils import to_dense_batch

from jat_graph.core.numbers import check_integer
from jat_graph.core.tensors import check_values, clean_padding


class MultiHeadProjections(torch.nn.Module):
    """Queries, keys and values of H heads, and the way back to one output."""

    shown: ClassVar[tuple[str, ...]] = ("head_channels",)  # what the layer's text says

    def __init__(
        self,
        channels: int,
        heads: int,
        head_channels: int | None = None,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
        memory_channels: int | None = None,  # of what keys and values come from; None means C
    ) -> None:
        super().__init__()
        self.channels = check_integer("channels", channels, least=1)
        self.heads = check_integer("heads", heads, least=1)
        if head_channels is None and channels % heads != 0:
            wanted = f"a multiple of heads={heads} without head_channels"
            raise ValueError(f"channels must be {wanted}, got {channels}")
        head_channels = channels // heads if head_channels is None else head_channels
        self.head_channels = check_integer("head_channels", head_channels, least=1)
        memory_channels = channels if memory_channels is None else memory_channels
        self.memory_channels = check_integer("memory_channels", memory_channels, least=1)
        inner_channels = heads * self.head_channels
        self.q = torch.nn.Linear(channels, inner_channels, bias=qkv_bias)
        self.k = torch.nn.Linear(self.memory_channels, inner_channels, bias=qkv_bias)
        self.v = torch.nn.Linear(self.memory_channels, inner_channels, bias=qkv_bias)
        self.attn_out = torch.nn.Linear(inner_channels, channels, bias=attn_out_bias)
        self.dropout = torch.nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for module in self.children():
            reset(module)

    def _reset_parameters(self) -> None:  # which GPSConv calls, as torch's attention has it
        self.reset_parameters()

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in ("heads", *self.shown))
        return f"{type(self).__name__}({self.channels}, {shown})"

    def project(
        self,
        x: Tensor,  # [B, N, C]
        memory: Tensor,  # [B, M, C_memory]
    ) -> tuple[Tensor, Tensor, Tensor]:  # [B, H, N, D], [B, H, M, D] twice
        """Return the queries of ``x``, and the keys and values of ``memory``."""
        query, key, value = self.q(x), self.k(memory), self.v(memory)
        return self._split_heads(query), self._split_heads(key), self._split_heads(value)

    def merge(
        self,
        out: Tensor,  # [B, H, N, D]
        mask: Tensor | None,  # nodes, bool [B, N]
    ) -> Tensor:  # [B, N, C]
        """Return the layer's output: what the heads read, projected; zeros where masked."""
        out = out.transpose(1, 2).flatten(2)  # [B, N, H · D]
        result: Tensor = self.dropout(self.attn_out(out))  # [B, N, C]
        return result if mask is None else result.masked_fill(~mask.unsqueeze(-1), 0.0)

    def _split_heads(self, features: Tensor) -> Tensor:
        heads = features.view(*features.shape[:-1], self.heads, self.head_channels)
        return heads.transpose(1, 2)  # [B, N, H · D] -> [B, H, N, D]


class SelfAttention(MultiHeadProjections, ABC):
    """Attention of the nodes of a graph, or the tokens of a sequence, to each other: a base class.

    A subclass says in ``_mix(x, mask)`` what the heads read, ``[B, H, N, D]``, for features
    ``[B, N, C]`` whose masked nodes are 0; ``self.project(x, x)`` gives queries, keys and values.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H.
        head_channels: Size D of each head. (default: None, which means ``channels // heads``)
        qkv_bias: Add a bias to queries, keys and values. (default: False)
        attn_out_bias: Add a bias to the output. (default: True)
        dropout: Dropout probability of the output. (default: 0.0)
        memory_channels: Size of what keys and values come from. (default: None, which means C)

    Raises:
        ValueError: If a size does not fit; in its forward, if a shape or dtype does not fit, the
            batch vector is not sorted, or a node has a NaN or an infinity.

    Shapes:
        - **input:** node features ``[B, N, C]`` with a bool mask ``[B, N]``, True for nodes, or
          None if all are; what the others hold is ignored. Or flat ones ``[N_total, C]`` with the
          graph of each node as ``batch`` ``[N_total]``, in rising order, or None for one graph;
          it may stand in the place of the mask, so that PyG's ``Sequential`` can pass it
        - **output:** as the input; zeros where the mask is False

    Reference:
        Vaswani et al., *Attention Is All You Need*, NeurIPS 2017, section 3.2.2.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Return attention of every node to the nodes of its graph."""
        if x.dim() == 2 and batch is None:
            mask, batch = None, mask
        self._check_input(x, mask, batch)
        dense = x if x.dim() == 3 else x.unsqueeze(0)  # [B, N, C]
        if batch is not None:
            dense, mask = to_dense_batch(x, batch)  # [B, N, C], [B, N]
        # Before the projections, whose gradients a NaN in a masked node would spoil, too.
        out = self.merge(self._mix(clean_tokens(dense, mask, self.channels), mask), mask)
        if batch is not None:
            return out[mask]
        return out if x.dim() == 3 else out.squeeze(0)

    @abstractmethod
    def _mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the heads read, ``[B, H, N, D]``; masked nodes of ``x`` are 0."""

    def _check_input(self, x: Tensor, mask: Tensor | None, batch: Tensor | None) -> None:
        if x.dim() not in (2, 3) or x.size(-1) != self.channels or 0 in x.shape:
            wanted = f"[B, N, {self.channels}] or [N_total, {self.channels}]"
            raise ValueError(f"x must be {wanted} and not empty, got {list(x.shape)}")
        check_values("x", x)
        if x.dim() == 2 and mask is not None:
            raise ValueError("mask needs dense x [B, N, C], got flat x and batch; use one of them")
        if batch is None:
            return
        if x.dim() == 3:
            raise ValueError("batch needs flat x [N_total, C], got dense x; use mask")
        if batch.dtype != torch.long or batch.shape != x.shape[:1]:
            got = f"{batch.dtype} {list(batch.shape)}"
            raise ValueError(f"batch must be torch.int64 [{x.size(0)}], got {got}")
        if bool((batch.diff() < 0).any()):
            raise ValueError("batch must be in rising order, got graphs that are interleaved")


class SequenceSelfAttention(SelfAttention):
    """Self-attention that knows the positions of its tokens: a base class.

    A subclass fills in ``_mix_sequence(x, mask)`` instead of ``_mix``, for valid tokens that come
    first. So positions count valid tokens only, and padding changes nothing wherever it stands.
    Arguments and shapes are those of :class:`SelfAttention`.
    """

    def _mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return self._mix_sequence(x, None)
        order = (~mask).long().argsort(dim=-1, stable=True)  # [B, N]: valid tokens, then padding
        out = self._mix_sequence(x.take_along_dim(order.unsqueeze(-1), 1), mask.gather(1, order))
        return out.take_along_dim(order.argsort(dim=-1)[:, None, :, None], 2)

    @abstractmethod
    def _mix_sequence(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return what the heads read of sequences that have no padding, or have it at the end."""


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


def clean_tokens(
    tokens: Tensor,  # [B, N, C]
    mask: Tensor | None,  # valid tokens, bool [B, N]
    channels: int,
    names: tuple[str, str] = ("x", "mask"),
) -> Tensor:
    """Check a batch of sequences and its mask, and set tokens that are not valid to 0."""
    name, mask_name = names
    if tokens.dim() != 3 or tokens.size(-1) != channels or 0 in tokens.shape:
        got = list(tokens.shape)
        raise ValueError(f"{name} must be [B, N, {channels}] and not empty, got {got}")
    check_values(name, tokens)
    wanted = tokens.shape[:2]
    if mask is not None and (mask.dtype != torch.bool or mask.shape != wanted):
        found = f"{mask.dtype} {list(mask.shape)}"
        raise ValueError(f"{mask_name} must be bool {list(wanted)}, got {found}")
    valid = None if mask is None else mask.unsqueeze(1)
    (clean,) = clean_padding(valid, **{name: tokens.unsqueeze(1)})
    return clean.squeeze(1)
