"""Attention by clusters as message passing over its graph."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.data import Batch, HeteroData
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.utils import softmax

from jat_graph.checks.numbers import check_flag


class ClusterConv(MessagePassing):  # type: ignore[misc]  # PyG is not typed
    r"""Softmax over the keys that a token reads exactly, and the cluster's scores of all others.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_j \mathrm{softmax}_j(s_{ij}) \, \mathbf{x}_j, \qquad
        s_{ij} = \begin{cases}
            \text{score of the edge} & j \in E_i \\
            \mathbf{c}_{a_i} \cdot \mathbf{k}_j & \text{elsewhere}
        \end{cases}

    where :math:`E_i` are the edges of ``"read_by"`` into token i, :math:`a_i` is the cluster that
    it joined, and :math:`\mathbf{c}` and :math:`\mathbf{k}` are the clusters' queries and the
    tokens' keys. This is what :func:`jat_graph.clustered_attention` computes, said in messages: a
    reference to read and to change. It has no parameters, and a message for each pair of tokens;
    without the rest, for each edge. ``torch.jit.script`` does not take it.

    In causal order, on graphs of :func:`jat_graph.tree_graph`, nodes of the tree stand for the
    rest: they send the mean of their values, a message for each edge.

    Args:
        rest: Read all other keys with the scores of clusters, or else not at all, as with
            ``propagate=False``. (default: True)

    Raises:
        ValueError: If ``rest`` is no bool.

    Shapes:
        - **input:** values ``[N, F]``, of all tokens of all graphs in their order; a ``HeteroData``
          or a ``Batch`` of :func:`jat_graph.cluster_graph` or :func:`jat_graph.tree_graph`
        - **output:** ``[N, F]``

    Reference:
        This library's own; "improved clustered attention" of Vyas, Katharopoulos and Fleuret,
        *Fast Transformers with Clustered Attention*, NeurIPS 2020, with the propagated row as it
        is.

    Example:
        >>> import jat_graph, torch
        >>> from jat_graph.nn import ClusterConv
        >>> query, key, value = torch.randn(3, 1, 4, 100, 8)  # each [B, H, L, D]
        >>> config = jat_graph.JatConfig.clustered(clusters=10, keys=4, block=8)
        >>> graphs = jat_graph.cluster_graph(query, key, config=config)
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
            wanted = "a HeteroData of jat_graph.cluster_graph"
            raise ValueError(f"graph must be {wanted}, got {type(graph).__name__}")
        number = graph["token"].num_nodes
        if x.dim() != 2 or len(x) != number:
            raise ValueError(f"x must be [{number}, F] for the graph's tokens, got {list(x.shape)}")
        read = graph["token", "read_by", "token"]
        edge_index, score = read.edge_index, read.score
        if self.rest and ("cluster", "read_by", "token") in graph.edge_types:
            nodes = graph["cluster", "read_by", "token"]
            below = nodes.edge_index + nodes.edge_index.new_tensor([[number], [0]])
            edge_index = torch.cat([edge_index, below], dim=1)
            x, score = torch.cat([x, node_means(x, graph)]), torch.cat([score, nodes.score])
        elif self.rest:
            others = other_pairs(graph)
            key, token = others
            cluster = graph["token", "joined", "cluster"].edge_index[1, token]
            row = (graph["cluster"].query[cluster] * graph["token"].key[key]).sum(-1)
            edge_index, score = torch.cat([edge_index, others], 1), torch.cat([score, row])
        weight = softmax(score, edge_index[1], num_nodes=number)
        weight, size = weight.to(x.dtype), (len(x), number)
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


def other_pairs(graph: HeteroData | Batch) -> Tensor:  # [2, E']
    """Return rows (key, token) of all pairs of one graph that are not read exactly."""
    number, read = graph["token"].num_nodes, graph["token", "read_by", "token"].edge_index
    start = graph["token"].ptr if isinstance(graph, Batch) else read.new_tensor([0, number])
    keys = [torch.arange(*ends, device=read.device) for ends in start.unfold(0, 2, 1).tolist()]
    pairs = torch.cat([torch.cartesian_prod(own, own) for own in keys], dim=0).T.flip(0)
    rank = torch.tensor([1, number], device=read.device)  # of a pair among all
    return pairs[:, torch.isin(rank @ pairs, rank @ read, invert=True)]
