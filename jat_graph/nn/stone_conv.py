"""Propagation over stepping stones as a PyG layer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.typing import OptTensor
from torch_geometric.utils import scatter

from jat_graph.core.numbers import check_finite
from jat_graph.core.tensors import flat_weights
from jat_graph.nn.jump_conv import OneGraphConv


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
        """Return the features that arrive at each node.

        Args:
            x, hyperedge_index: Node features, and rows (node, hyperedge).
            link_weight: The weight of each link, at least 0. (default: None, all 1)

        Returns:
            Node features ``[N, F_out]``.

        Raises:
            ValueError: If a shape does not fit, or x is a tuple.
        """
        self.check_features(x)
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
        whole = degree + loops
        # Nothing is shared out by weights whose sum is 0: there are none, or they cancel.
        sizes, whole = (total.masked_fill(total == 0, torch.inf) for total in (sizes, whole))
        shares = weight / sizes[hyperedge]
        size = x.size(0), stones
        means = self.propagate(hyperedge_index, x=x, weight=shares, size=size)
        total = self.propagate(hyperedge_index.flip(0), x=means, weight=weight, size=size[::-1])
        out: Tensor = (total + (loops * x.mT).mT) / whole.unsqueeze(-1)
        return out

    def message(self, x_j: Tensor, weight: Tensor) -> Tensor:
        return weight.unsqueeze(-1) * x_j

    def __repr__(self) -> str:
        widths = f"{self.in_channels}, {self.out_channels}"
        return f"{type(self).__name__}({widths}, self_weight={self.self_weight})"
