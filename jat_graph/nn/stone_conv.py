"""The walk over stepping stones as a PyG layer."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.typing import OptTensor
from torch_geometric.utils import scatter

from jat_graph.checks.numbers import check_finite, check_integer
from jat_graph.checks.tensors import flat_weights
from jat_graph.nn.pyg_inputs import refuse_bipartite, refuse_script


class StoneConv(MessagePassing):  # type: ignore[misc]  # PyG is not typed
    r"""The walk from a token to a stone and on to another token, a hypergraph convolution.

    .. math::
        \mathbf{X}^{\prime} = (\mathbf{D} + \varepsilon \mathbf{I})^{-1} (\mathbf{B}
        \mathbf{S}^{-1} \mathbf{B}^{\top} + \varepsilon \mathbf{I}) \mathbf{X} \mathbf{W}

    where :math:`\mathbf{B}` holds the weights of the links of nodes and hyperedges, and
    :math:`\mathbf{D}` and :math:`\mathbf{S}` their row and column sums. A node on no hyperedge
    keeps its features. It differs from ``HypergraphConv`` by weights of links, and by ε.
    ``torch.compile`` takes it; ``torch.jit.script`` does not.

    Args:
        in_channels: Size of each input sample, or -1 to take it from the first input.
        out_channels: Size of each output sample. (default: None, which means no filter and no
            parameters: pure propagation, as in jump heads)
        self_weight: ε, the weight with which a node stays where it is, at least 0. (default: 0.1)
        bias: Add a learnable bias to the filter's output; without a filter there is none.
            (default: True)

    Raises:
        ValueError: If a number of channels or ε does not fit.

    Shapes:
        - **input:** node features ``[N, F_in]``; rows (node, hyperedge) ``[2, E]`` with optional
          weights ``[E]`` or ``[E, 1]``
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
        if in_channels != -1:
            check_integer("in_channels", in_channels, least=1)
        super().__init__(aggr="add", flow="source_to_target", node_dim=0)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.self_weight = check_finite("self_weight", self_weight, least=0.0)
        self.lin: Linear | None = None
        if out_channels is not None:
            check_integer("out_channels", out_channels, least=1)
            self.lin = Linear(in_channels, out_channels, bias=bias)

    def reset_parameters(self) -> None:
        """Draw the filter anew."""
        super().reset_parameters()
        if self.lin is not None:
            self.lin.reset_parameters()

    def forward(self, x: Tensor, hyperedge_index: Tensor, link_weight: OptTensor = None) -> Tensor:
        """Return the features that arrive at each node.

        Args:
            x: Node features ``[N, F_in]``.
            hyperedge_index: Rows (node, hyperedge), ``[2, E]``.
            link_weight: The weight of each link, at least 0, ``[E]`` or ``[E, 1]``. (default: None,
                all 1)

        Returns:
            Node features.

        Raises:
            ValueError: If a shape does not fit, or x is a tuple.

        Shapes:
            - **output:** ``[N, F_out]``
        """
        refuse_bipartite(self, x)
        if x.dim() != 2 or not x.is_floating_point():
            raise ValueError(f"x must be floating point [N, F_in], got {x.dtype} {list(x.shape)}")
        if hyperedge_index.dim() != 2 or hyperedge_index.size(0) != 2:
            raise ValueError(f"hyperedge_index must be [2, E], got {list(hyperedge_index.shape)}")
        if hyperedge_index.dtype != torch.long:
            raise ValueError(f"hyperedge_index must be torch.int64, got {hyperedge_index.dtype}")
        link_weight = flat_weights("link_weight", link_weight, hyperedge_index.size(1))
        x = x if self.lin is None else self.lin(x)
        node, hyperedge = hyperedge_index
        weight = x.new_ones(len(node)) if link_weight is None else link_weight.to(x.dtype)
        stones = int(hyperedge.max()) + 1 if hyperedge.numel() else 0
        sizes = scatter(weight, hyperedge, dim_size=stones)
        degree = scatter(weight, node, dim_size=x.size(0))
        loops = (degree == 0).to(x.dtype) if self.self_weight == 0 else self.self_weight
        shares = weight / sizes[hyperedge].masked_fill(weight == 0, 1.0)
        size = x.size(0), stones
        means = self.propagate(hyperedge_index, x=x, weight=shares, size=size)
        walked = self.propagate(hyperedge_index.flip(0), x=means, weight=weight, size=size[::-1])
        out: Tensor = (walked + (loops * x.mT).mT) / (degree + loops).unsqueeze(-1)
        return out

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        """Return what goes along each link, ``[E, F]``."""
        return weight.unsqueeze(-1) * x_j

    def __repr__(self) -> str:
        widths = f"{self.in_channels}, {self.out_channels}"
        return f"{type(self).__name__}({widths}, self_weight={self.self_weight})"

    def __prepare_scriptable__(self) -> NoReturn:
        refuse_script(self)
