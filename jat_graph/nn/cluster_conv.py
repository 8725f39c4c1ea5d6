"""Attention by clusters as message passing over its graph."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch, HeteroData
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import softmax

from jat_graph.core.numbers import check_flag


class ClusterConv(MessagePassing):  # type: ignore[misc]  # PyG is not typed
    r"""Softmax over the keys that a token reads exactly, and nodes of a tree for all others.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_a \mathrm{softmax}_a(s_{ia}) \, \bar{\mathbf{x}}_a

    where a are the keys and the nodes with an edge of ``"read_by"`` into token i, :math:`s_{ia}` is
    its score, and :math:`\bar{\mathbf{x}}_a` the value of the key, or the mean of the node's. This
    is what :func:`jat_graph.clustered_attention` computes, said in messages: a reference to read
    and to change. It has no parameters, and a message for each edge. ``torch.jit.script`` does not
    take it.

    Args:
        rest: Read all other keys by means of nodes, or else not at all, as with
            ``propagate=False``. (default: True)

    Raises:
        ValueError: If ``rest`` is no bool.

    Shapes:
        - **input:** values ``[N, F]``, of all tokens of all graphs in their order; a ``HeteroData``
          or a ``Batch`` of :func:`jat_graph.tree_graph`
        - **output:** ``[N, F]``

    Reference:
        This library's own.

    Example:
        >>> import jat_graph, torch
        >>> from jat_graph.nn import ClusterConv
        >>> query, key, value = torch.randn(3, 1, 4, 100, 8)  # each [B, H, L, D]
        >>> config = jat_graph.JatConfig.clustered(keys=8, size=4, segment=32)
        >>> graphs = jat_graph.tree_graph(query, key, config=config)
        >>> ClusterConv()(value.flatten(0, 2), graphs).view_as(value).shape
        torch.Size([1, 4, 100, 8])
    """

    def __init__(self, rest: bool = True) -> None:
        super().__init__(aggr="add")
        self.rest = check_flag("rest", rest)

    def forward(self, x: Tensor, graph: HeteroData | Batch) -> Tensor:
        """Return what each token reads.

        Args:
            x: The tokens' values, ``[N, F]``.
            graph: One graph, or a batch of them.

        Returns:
            The heads' outputs, ``[N, F]``.

        Raises:
            ValueError: If there is not a value for each token.
        """
        if not isinstance(graph, HeteroData):
            wanted = "a HeteroData of jat_graph.tree_graph"
            raise ValueError(f"graph must be {wanted}, got {type(graph).__name__}")
        number = graph["token"].num_nodes
        if x.dim() != 2 or len(x) != number:
            raise ValueError(f"x must be [{number}, F] for the graph's tokens, got {list(x.shape)}")
        read = graph["token", "read_by", "token"]
        edge_index, score = read.edge_index, read.score
        if self.rest:
            nodes = graph["cluster", "read_by", "token"]
            below = nodes.edge_index + nodes.edge_index.new_tensor([[number], [0]])
            edge_index = torch.cat([edge_index, below], dim=1)
            x = torch.cat([x, node_means(x, graph)])
            score = torch.cat([score, nodes.score])
        weight = softmax(score, edge_index[1], num_nodes=number)
        weight = weight.to(x.dtype)
        size = (len(x), number)
        out: Tensor = self.propagate(edge_index, x=(x, None), weight=weight, size=size)
        return out

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return weight.unsqueeze(-1) * x_j

    def __repr__(self) -> str:
        return f"{type(self).__name__}(rest={self.rest})"


def node_means(x: Tensor, graph: HeteroData | Batch) -> Tensor:  # [M, F]
    """Return the mean over the keys of each node of the trees, level by level."""
    nodes = graph["cluster"]
    token, cluster = graph["token", "in", "cluster"].edge_index
    sums: Tensor = x.new_zeros(nodes.num_nodes, x.size(1)).index_add(0, cluster, x[token])
    child, parent = graph["cluster", "in", "cluster"].edge_index
    for level in nodes.level.unique().tolist()[1:]:
        own = nodes.level[parent] == level
        sums = sums.index_add(0, parent[own], sums[child[own]])
    size: Tensor = nodes.size
    return sums / size.unsqueeze(1)
