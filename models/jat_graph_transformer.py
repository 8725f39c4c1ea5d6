"""A graph transformer whose global attention jumps: message passing along edges beside it.

Each layer has the recipe of GPS: a layer of message passing along the given edges, attention among
all nodes of a graph, their sum, and two linear layers, each with a residual connection and batch
normalisation. PyG's ``GPSConv`` makes its attention itself and cannot host another, so
:class:`JumpGPSConv` composes the recipe by hand; it is called as ``GPSConv`` is, and either may be
a layer of :class:`GraphTransformer`.

Sources:
    Rampášek et al., *Recipe for a General, Powerful, Scalable Graph Transformer*, NeurIPS 2022.
    Zhou et al., *Jump Self-attention*, NeurIPS 2022, for the attention.
    Dwivedi et al., *Graph Neural Networks with Learnable Structural and Positional
    Representations*, ICLR 2022, for the random walks that say where a node is in its graph.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch_geometric.nn import GINConv

from jat_graph import JatConfig
from jat_graph.nn import JumpSelfAttention


class GraphTransformer(nn.Module):
    """Logits for every node of a batch of graphs.

    Args:
        kinds: Number of kinds of nodes.
        walk_length: Steps of the random walks in the nodes' positions.
        classes: Number of classes of a node.
        channels: Size C of each node's features.
        layers: Number of layers.
        make_layer: Makes a layer for ``channels`` features: :class:`JumpGPSConv` or ``GPSConv``.
    """

    def __init__(
        self,
        kinds: int,
        walk_length: int,
        classes: int,
        channels: int,
        layers: int,
        make_layer: Callable[[int], nn.Module],
    ) -> None:
        super().__init__()
        self.kind = nn.Embedding(kinds, channels)
        self.walk = nn.Sequential(nn.BatchNorm1d(walk_length), nn.Linear(walk_length, channels))
        self.layers = nn.ModuleList(make_layer(channels) for _ in range(layers))
        self.head = nn.Linear(channels, classes)

    def forward(self, kind: Tensor, walk: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Return logits ``[N, classes]``.

        Args:
            kind: Kind of each node, ``[N]``.
            walk: Its chances to be back after so many random steps, ``[N, walk_length]``.
            edge_index: Edges, ``[2, E]``.
            batch: Graph of each node, ``[N]``, in rising order.
        """
        x = self.kind(kind) + self.walk(walk)  # [N, C]
        for layer in self.layers:
            x = layer(x, edge_index, batch)
        return self.head(x)


class JumpGPSConv(nn.Module):
    """A GPS layer whose attention has jump heads.

    Args:
        channels: Size C of each node's features.
        heads: Number of heads.
        config: Settings of the jump heads; its ``conv`` names a layer of PyG to run in them.
        dropout: Dropout probability of each part.
    """

    def __init__(self, channels: int, heads: int, config: JatConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.local = GINConv(feed_forward(channels, channels))
        self.attention = JumpSelfAttention(channels, heads, config, qkv_bias=True)
        self.feed_forward = feed_forward(channels, 2 * channels, dropout)
        self.local_norm, self.attention_norm, self.norm = (
            nn.BatchNorm1d(channels) for _ in range(3)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        """Return features of the same shape, ``[N, C]``; without a batch it is one graph."""
        near = self.local_norm(x + self.dropout(self.local(x, edge_index)))
        far = self.attention_norm(x + self.dropout(self.attention(x, batch=batch)))
        x = near + far
        return self.norm(x + self.dropout(self.feed_forward(x)))


def feed_forward(channels: int, inner: int, dropout: float = 0.0) -> nn.Sequential:
    """Return two linear layers that keep the size of the features."""
    return nn.Sequential(
        nn.Linear(channels, inner), nn.ReLU(), nn.Dropout(dropout), nn.Linear(inner, channels)
    )
