"""Graph convolutions as PyG layers: with Â, over stepping stones, and over trees of keys."""

from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch_geometric.data import Batch, HeteroData
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import reset
from torch_geometric.typing import Adj, OptTensor, SparseTensor
from torch_geometric.utils import is_torch_sparse_tensor, remove_self_loops, scatter, softmax, spmm

from jat_graph.core.numbers import check_finite, check_flag, check_integer
from jat_graph.core.tensors import check_index, flat_weights, is_wide


class OneGraphConv(MessagePassing):  # type: ignore[misc]  # PyG is not typed
    """A layer for one kind of nodes, whose filter, if it has one, comes with ``out_channels``."""

    def __init__(self, in_channels: int, out_channels: int | None) -> None:
        super().__init__(aggr="add")
        self.in_channels, self.out_channels = in_channels, out_channels
        if in_channels != -1:
            check_integer("in_channels", in_channels, least=1)
        if out_channels is not None:
            check_integer("out_channels", out_channels, least=1)

    def check_features(self, x: Any) -> None:
        """Refuse what is no features of the nodes; of two kinds of nodes in PyG's words."""
        if isinstance(x, tuple | list):
            raise ValueError(
                f"'{type(self).__name__}' received a tuple of node features as input while this "
                "layer does not support bipartite message passing. Please try other layers such as "
                "'SAGEConv' or 'GraphConv' instead"
            )
        width = self.in_channels if self.in_channels >= 0 else x.size(-1)
        if x.dim() != 2 or x.size(-1) != width or not is_wide(x) or x.is_meta:
            wanted = f"[N, {self.in_channels if self.in_channels >= 0 else 'F_in'}]"
            got = f"{x.dtype} {list(x.shape)} on {x.device}"
            raise ValueError(f"x must be floating point {wanted}, got {got}")

    def message(self, x_j: Tensor, edge_weight: OptTensor) -> Tensor:
        return x_j if edge_weight is None else edge_weight.unsqueeze(-1) * x_j

    def __prepare_scriptable__(self) -> NoReturn:
        name = type(self).__name__
        raise NotImplementedError(f"'{name}' does not support torch.jit.script; use torch.compile")


class JumpConv(OneGraphConv):
    r"""The graph convolution of jump self-attention, with hops side by side as in MixHop.

    .. math::
        \mathbf{X}^{\prime} = {\Big\Vert}_{p \in P} \mathbf{\hat{A}}^p \mathbf{X} \mathbf{W}_p,
        \qquad \mathbf{\hat{A}} =
        \mathbf{\tilde{D}}^{-1/2} (\mathbf{A} + \mathbf{I}) \mathbf{\tilde{D}}^{-1/2}

    where :math:`\mathbf{\tilde{D}}` holds the row sums of :math:`\mathbf{A} + \mathbf{I}`. Row i of
    A holds the edges into i: ``edge_index`` has rows (source k, target i), and a sparse matrix is
    PyG's ``adj_t``, its rows the targets. A has no self-loops: one that is given counts as
    the one of weight 1 that Â adds. Take torch's CSR, unless weights ask for gradients: products by
    a matrix take much less time than messages edge by edge, but gradients of its values take more.
    A node whose row sum is not above 0, as negative weights may make it, sends and gets nothing.

    Sums accumulate in float32, or in float64 for float64 features. ``torch.compile`` takes it;
    ``torch.jit.script`` does not.

    Args:
        in_channels: Size of each input sample, or -1 to take it from the first input.
        out_channels: Size of the output of each power. (default: None, which means no filter and
            no parameters: pure propagation, as in jump attention)
        powers: The powers P of Â; 0 is the input itself. (default: (1,))
        bias: Add a learnable bias to the output of the filter, if there is one. (default: True)

    Raises:
        ValueError: If a number of channels or a power does not fit; in its forward, if a shape does
            not fit, the features are a tuple, or weights come with a sparse matrix.

    Shapes:
        - **input:** node features ``[N, F_in]``; edge indices ``[2, E]`` with weights ``[E]`` or
          ``[E, 1]``, without which all are 1, or the sparse matrix A itself, ``[N, N]``, which
          holds its own: a ``torch_sparse.SparseTensor`` or a torch sparse tensor
        - **output:** ``[N, |P| · F_out]`` in the dtype of the input; F_out is F_in without a filter

    Reference:
        Eq. 4 and 5 of the JAT paper; Abu-El-Haija et al., *MixHop: Higher-Order Graph Convolutional
        Architectures via Sparsified Neighborhood Mixing*, ICML 2019.

    Example:
        >>> import torch
        >>> from jat_graph.nn import JumpConv
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])
        >>> JumpConv(16, 32)(x, edge_index).shape
        torch.Size([4, 32])
        >>> JumpConv(16, 32, powers=(0, 1, 2))(x, edge_index, torch.rand(3)).shape
        torch.Size([4, 96])
    """

    takes_matrix = True  # heads hand it CSR

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        powers: Sequence[int] = (1,),
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels)
        self.powers = tuple(check_integer("powers", power, least=0) for power in powers)
        if not self.powers or len(set(self.powers)) != len(self.powers):
            raise ValueError(f"powers must be one or more different integers, got {self.powers}")
        filters = () if out_channels is None else self.powers
        self.lins = torch.nn.ModuleList(
            Linear(in_channels, out_channels, bias=False) for _ in filters
        )
        if bias and out_channels is not None:
            self.bias = torch.nn.Parameter(torch.zeros(len(filters) * out_channels))
        else:
            self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        reset(self.lins)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: Adj, edge_weight: OptTensor = None) -> Tensor:
        """Return the filtered powers of Â times the features, side by side."""
        self.check_features(x)
        # At least float32: a bfloat16 sum of weights stops growing at 256.
        hop = x.to(torch.promote_types(x.dtype, torch.float32))
        graph, weight = _without_loops(edge_index, edge_weight, hop, bool(self.explain))
        # propagate_type: (x: Tensor, edge_weight: OptTensor)
        degree = self.propagate(graph, x=hop.new_ones(len(hop), 1), edge_weight=weight)
        scale = (degree + 1).masked_fill(degree <= -1, torch.inf).rsqrt()
        hops = [x]
        for _ in range(max(self.powers)):
            # The loops of Â are a sum, not edges: a matrix with them would have to be sorted anew.
            hop = scale * hop
            hop = scale * (self.propagate(graph, x=hop, edge_weight=weight) + hop)
            hops.append(hop.to(x.dtype))
        chosen = [hops[power] for power in self.powers]
        if self.out_channels is not None:
            chosen = [lin(hop) for lin, hop in zip(self.lins, chosen, strict=True)]
        out = torch.cat(chosen, dim=-1)  # [N, |P| · F_out]
        return out if self.bias is None else out + self.bias

    def message_and_aggregate(self, adj_t: Adj, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # CSR: no bfloat16
            product: Tensor = spmm(adj_t, x)
        return product

    def __repr__(self) -> str:
        widths = f"{self.in_channels}, {self.out_channels}"
        return f"{type(self).__name__}({widths}, powers={self.powers})"


class StoneConv(OneGraphConv):
    r"""From tokens to stones and on to other tokens, a hypergraph convolution.

    .. math::
        \mathbf{X}^{\prime} = (\mathbf{D} + \varepsilon \mathbf{I})^{-1} (\mathbf{B}
        \mathbf{S}^{-1} \mathbf{B}^{\top} + \varepsilon \mathbf{I}) \mathbf{X} \mathbf{W}

    where :math:`\mathbf{B}` holds the weights of the links of nodes and hyperedges, and
    :math:`\mathbf{D}` and :math:`\mathbf{S}` their row and column sums. A node on no hyperedge
    keeps its features. It differs from ``HypergraphConv`` by weights of links, and by ε.
    ``torch.compile`` takes it; ``torch.jit.script`` does not.

    Args:
        in_channels, out_channels, bias: As for :class:`JumpConv`.
        self_weight: ε, the weight with which a node stays where it is, at least 0. (default: 0.1)

    Raises:
        ValueError: If a number of channels or ε does not fit; in its forward, if a shape does not
            fit, or the features are a tuple.

    Shapes:
        - **input:** node features ``[N, F_in]``; rows (node, hyperedge) ``[2, E]`` with weights
          ``[E]`` or ``[E, 1]``, at least 0, without which all are 1
        - **output:** node features ``[N, F_out]``; F_out is F_in without a filter

    Reference:
        Bai, Zhang and Torr, *Hypergraph Convolution and Hypergraph Attention*, 2021. Weights of
        links, and ε, are this library's own.

    Example:
        >>> import torch
        >>> from jat_graph.nn import StoneConv
        >>> x = torch.randn(4, 16)
        >>> hyperedge_index = torch.tensor([[0, 1, 2, 2, 3], [0, 0, 0, 1, 1]])
        >>> StoneConv(16, 32)(x, hyperedge_index, link_weight=torch.rand(5)).shape
        torch.Size([4, 32])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        self_weight: float = 0.1,
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels)
        self.self_weight = check_finite("self_weight", self_weight, least=0.0)
        self.lin: Linear | None = None
        if out_channels is not None:
            self.lin = Linear(in_channels, out_channels, bias=bias)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.lin is not None:
            self.lin.reset_parameters()

    def forward(self, x: Tensor, hyperedge_index: Tensor, link_weight: OptTensor = None) -> Tensor:
        """Return the features that arrive at each node."""
        self.check_features(x)
        hyperedge_index = check_index("hyperedge_index", hyperedge_index)
        link_weight = flat_weights("link_weight", link_weight, hyperedge_index.size(1))
        x = x if self.lin is None else self.lin(x)
        node, hyperedge = hyperedge_index
        weight = x.new_ones(len(node)) if link_weight is None else link_weight.to(x.dtype)
        stones = int(hyperedge.max()) + 1 if hyperedge.numel() else 0
        sizes = scatter(weight, hyperedge, dim_size=stones)
        degree = scatter(weight, node, dim_size=x.size(0))
        loops = (degree == 0).to(x.dtype) if self.self_weight == 0 else self.self_weight
        whole = degree + loops
        # Nothing is shared out by weights whose sum is 0: there are none, or they cancel.
        sizes, whole = (total.masked_fill(total == 0, torch.inf) for total in (sizes, whole))
        shares = weight / sizes[hyperedge]
        size = x.size(0), stones
        means = self.propagate(hyperedge_index, x=x, edge_weight=shares, size=size)
        total = self.propagate(
            hyperedge_index.flip(0), x=means, edge_weight=weight, size=size[::-1]
        )
        out: Tensor = (total + (loops * x.mT).mT) / whole.unsqueeze(-1)
        return out

    def __repr__(self) -> str:
        widths = f"{self.in_channels}, {self.out_channels}"
        return f"{type(self).__name__}({widths}, self_weight={self.self_weight})"


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
            x, graph: The tokens' values, and their graph.

        Returns:
            The heads' outputs.

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


def node_means(x: Tensor, graph: HeteroData) -> Tensor:  # [M, F]
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


def _without_loops(
    edge_index: Adj, edge_weight: OptTensor, x: Tensor, explain: bool
) -> tuple[Adj, OptTensor]:
    """Return A in the form that it came in: edges and weights, or a sparse matrix and None."""
    # A torch tensor becomes CSR, and keeps the entries of its loops as zeros.
    if isinstance(edge_index, SparseTensor) or is_torch_sparse_tensor(edge_index):
        if edge_weight is not None:
            wanted = "None with a sparse edge_index, which holds its own weights"
            raise ValueError(f"edge_weight must be {wanted}; got {list(edge_weight.shape)}")
        size = [edge_index.size(0), edge_index.size(1)]
        if size != [len(x), len(x)]:
            wanted = f"{[len(x), len(x)]} like the nodes of x"
            raise ValueError(f"a sparse edge_index must be {wanted}, got {size}")
        return _matrix_without_loops(edge_index, x.dtype), None
    edge_index = check_index("edge_index", edge_index)
    edge_weight = flat_weights("edge_weight", edge_weight, edge_index.size(1))
    edge_weight = None if edge_weight is None else edge_weight.to(x.dtype)
    if explain:  # an explainer's mask has an entry for each edge that it was given
        weight = x.new_ones(edge_index.size(1)) if edge_weight is None else edge_weight
        return edge_index, weight.masked_fill(edge_index[0] == edge_index[1], 0.0)
    return remove_self_loops(edge_index, edge_weight)  # type: ignore[no-any-return]


def _matrix_without_loops(matrix: Adj, dtype: torch.dtype) -> Adj:
    if isinstance(matrix, SparseTensor):
        matrix = matrix.remove_diag()
        value = matrix.storage.value()
        return matrix if value is None else matrix.set_value(value.to(dtype), "coo")
    matrix = matrix if matrix.layout == torch.sparse_csr else matrix.to_sparse_csr()
    first, column, value = matrix.crow_indices(), matrix.col_indices(), matrix.values()
    row = torch.repeat_interleave(first.diff(), output_size=len(column))
    value = value.to(dtype).masked_fill(row == column, 0.0)
    return torch.sparse_csr_tensor(first, column, value, matrix.shape)
