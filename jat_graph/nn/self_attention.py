"""What attention layers have in common, whatever their heads do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor
from torch_geometric.nn.inits import reset
from torch_geometric.utils import to_dense_batch

from jat_graph.core.numbers import check_integer
from jat_graph.core.tensors import check_values, clean_padding


class SelfAttention(torch.nn.Module, ABC):
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

    shown: ClassVar[tuple[str, ...]] = ("head_channels",)  # what the layer's text says

    def __init__(
        self,
        channels: int,
        heads: int,
        head_channels: int | None = None,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.channels = check_integer("channels", channels, least=1)
        self.heads = check_integer("heads", heads, least=1)
        if head_channels is None and channels % heads != 0:
            wanted = f"a multiple of heads={heads} without head_channels"
            raise ValueError(f"channels must be {wanted}, got {channels}")
        head_channels = channels // heads if head_channels is None else head_channels
        self.head_channels = check_integer("head_channels", head_channels, least=1)
        inner_channels = heads * self.head_channels
        self.q = torch.nn.Linear(channels, inner_channels, bias=qkv_bias)
        self.k = torch.nn.Linear(channels, inner_channels, bias=qkv_bias)
        self.v = torch.nn.Linear(channels, inner_channels, bias=qkv_bias)
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
        memory: Tensor,  # what keys and values come from, [B, M, C]
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

    def forward(self, x: Tensor, mask: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Return attention of every node to the nodes of its graph."""
        if x.dim() == 2 and batch is None:
            mask, batch = None, mask
        self._check_input(x, mask, batch)
        dense = x if x.dim() == 3 else x.unsqueeze(0)  # [B, N, C]
        if batch is not None:
            dense, mask = to_dense_batch(x, batch)  # [B, N, C], [B, N]
        # Before the projections, whose gradients a NaN in a masked node would spoil, too.
        valid = None if mask is None else mask.unsqueeze(1)
        (clean,) = clean_padding(valid, x=dense.unsqueeze(1))
        out = self.merge(self._mix(clean.squeeze(1), mask), mask)
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
        shape = list(x.shape[:2])
        if mask is not None and (mask.dtype != torch.bool or list(mask.shape) != shape):
            raise ValueError(f"mask must be bool {shape}, got {mask.dtype} {list(mask.shape)}")
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
