"""Global self-attention over the nodes of graphs, some of its heads jumping."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.utils import to_dense_batch

from jat_graph.attention import attend
from jat_graph.checks import check_config, clean_padding
from jat_graph.config import JatConfig
from jat_graph.config_fields import check_integer
from jat_graph.masks import resolve_mask
from jat_graph.propagation import head_groups


class JumpSelfAttention(torch.nn.Module):
    r"""Multi-head self-attention whose first, or chosen, heads propagate queries and keys.

    .. math::
        \mathrm{softmax}\left(\textstyle\sum_p w_p\, \mathbf{\hat{A}}^p \mathbf{Q}
        (\mathbf{\hat{A}}^p \mathbf{K})^{\top} / \sqrt{D} \right) \mathbf{V}

    Heads that ``config.heads`` does not name are ordinary ones. The projections are named as in
    PyG's own ``nn.attention`` modules, ``q``, ``k``, ``v`` and ``attn_out``.

    The module is a model of one layer: ``config.layers`` must be None or ``(0,)``, and a table of
    thresholds must have one row, with an entry for each jump head. A stack of layers takes one
    config each. In a layer trained from scratch the scores start near 0, so that a fixed threshold
    joins nothing: take ``vote_rate``.

    Args:
        channels: Size C of each input and output sample.
        heads: Number of heads H.
        config: The settings.
        head_channels: Size D of each head. (default: None, which means ``channels // heads``)
        qkv_bias: Add a bias to queries, keys and values. (default: False)
        attn_out_bias: Add a bias to the output. (default: True)
        dropout: Dropout probability of the output. (default: 0.0)

    Raises:
        ValueError: If a size does not fit, or the config does not fit one layer of these heads.

    Shapes:
        - **input:** node features ``[B, N, C]`` with a bool mask ``[B, N]`` *(optional)*, or
          ``[N_total, C]`` with a batch vector ``[N_total]`` *(optional)*
        - **output:** as the input

    Reference:
        Eq. 7 and 9 of the JAT paper.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        config: JatConfig,
        head_channels: int | None = None,
        qkv_bias: bool = False,
        attn_out_bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        check_config(config)
        super().__init__()
        self.channels = check_integer("channels", channels, least=1)
        self.heads = check_integer("heads", heads, least=1)
        self.head_channels = _check_head_channels(channels, heads, head_channels)
        self.config = config
        self.jump_heads = config.head_indices(heads)
        self.layer_config = _only_layer(config, self.jump_heads)
        inner_channels = heads * self.head_channels
        self.q = torch.nn.Linear(channels, inner_channels, bias=qkv_bias)
        self.k = torch.nn.Linear(channels, inner_channels, bias=qkv_bias)
        self.v = torch.nn.Linear(channels, inner_channels, bias=qkv_bias)
        self.attn_out = torch.nn.Linear(inner_channels, channels, bias=attn_out_bias)
        self.dropout = torch.nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        """Draw all parameters anew."""
        for lin in (self.q, self.k, self.v, self.attn_out):
            lin.reset_parameters()

    def forward(self, x: Tensor, mask: Tensor | None = None, batch: Tensor | None = None) -> Tensor:
        """Return attention of every node to all nodes of its graph.

        Args:
            x: Node features, dense ``[B, N, C]`` or flat ``[N_total, C]``.
            mask: With dense features, bool ``[B, N]``, True for nodes; what the others hold is
                ignored. With flat ones, the batch vector may stand here, so that
                ``torch_geometric.nn.Sequential`` can pass it. (default: None, all are nodes)
            batch: With flat features, the graph of each node ``[N_total]``, in rising order.
                (default: None, one graph)

        Returns:
            Node features; zeros where the mask is False.

        Raises:
            ValueError: If a shape or dtype does not fit, the batch vector is not sorted, or a node
                has a NaN or an infinity.

        Shapes:
            - **output:** as ``x``
        """
        if x.dim() == 2 and batch is None:
            mask, batch = None, mask
        self._check_input(x, mask, batch)
        if x.dim() == 3:
            return self._attend(x, mask)
        if batch is None:
            return self._attend(x.unsqueeze(0), None).squeeze(0)
        dense, mask = to_dense_batch(x, batch)  # [B, N, C], [B, N]
        return self._attend(dense, mask)[mask]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.channels}, heads={self.heads}, "
            f"head_channels={self.head_channels}, jump_heads={self.jump_heads})"
        )

    def _attend(self, x: Tensor, mask: Tensor | None) -> Tensor:
        # Before the projections, whose gradients a NaN in a masked node would spoil, too.
        (x,) = clean_padding(None if mask is None else mask.unsqueeze(1), x=x.unsqueeze(1))
        query, key, value = (self._split_heads(lin(x)) for lin in (self.q, self.k, self.v))
        token_mask = resolve_mask(mask, False, query)
        attn_mask, is_causal = token_mask.attention_mask(query.size(2), query)
        scale = self.head_channels**-0.5
        groups = head_groups(
            query,
            key,
            config=self.layer_config,
            heads=self.jump_heads,
            mask=token_mask,
            scale=scale,
        )
        out = attend(
            groups, value, attn_mask=attn_mask, is_causal=is_causal, dropout_p=0.0, scale=scale
        )
        out = out.transpose(1, 2).flatten(2)  # [B, H, N, D] -> [B, N, H · D]
        result: Tensor = self.dropout(self.attn_out(out))  # [B, N, C]
        return result if mask is None else result.masked_fill(~mask.unsqueeze(-1), 0.0)

    def _split_heads(self, x: Tensor) -> Tensor:
        heads = x.view(*x.shape[:-1], self.heads, self.head_channels)
        return heads.squeeze(1).transpose(1, 2)  # [B, 1, N, H · D] -> [B, H, N, D]

    def _check_input(self, x: Tensor, mask: Tensor | None, batch: Tensor | None) -> None:
        if x.dim() not in (2, 3) or x.size(-1) != self.channels or 0 in x.shape:
            wanted = f"[B, N, {self.channels}] or [N_total, {self.channels}]"
            raise ValueError(f"x must be {wanted} and not empty, got {list(x.shape)}")
        if x.dim() == 3:
            _check_mask(mask, batch, x)
        else:
            _check_batch(mask, batch, x)


def _check_mask(mask: Tensor | None, batch: Tensor | None, x: Tensor) -> None:
    if batch is not None:
        raise ValueError("batch needs flat x [N_total, C], got dense x; use mask")
    if mask is None:
        return
    if mask.dtype != torch.bool or mask.shape != x.shape[:2]:
        raise ValueError(
            f"mask must be bool {list(x.shape[:2])}, got {mask.dtype} {list(mask.shape)}"
        )


def _check_batch(mask: Tensor | None, batch: Tensor | None, x: Tensor) -> None:
    if mask is not None:
        raise ValueError("mask needs dense x [B, N, C], got flat x and batch; use one of them")
    if batch is None:
        return
    if batch.dtype != torch.long or batch.shape != x.shape[:1]:
        raise ValueError(
            f"batch must be torch.int64 [{x.size(0)}], got {batch.dtype} {list(batch.shape)}"
        )
    if bool((batch.diff() < 0).any()):
        raise ValueError("batch must be in rising order, got graphs that are interleaved")


def _check_head_channels(channels: int, heads: int, head_channels: int | None) -> int:
    if head_channels is not None:
        return check_integer("head_channels", head_channels, least=1)
    if channels % heads != 0:
        raise ValueError(
            f"channels must be a multiple of heads={heads} without head_channels, got {channels}"
        )
    return channels // heads


def _only_layer(config: JatConfig, heads: tuple[int, ...]) -> JatConfig:
    """Return the config of layer 0, the only one that this module is."""
    config.layer_indices(1)
    if isinstance(config.threshold, tuple) and len(config.threshold) != 1:
        raise ValueError(
            f"threshold table must have one row for one layer, got {len(config.threshold)}"
        )
    return config.for_layer(0, heads)
