"""What layers along one graph take and refuse, as PyG's own ``GCNConv`` does."""

from __future__ import annotations

from typing import Any, NoReturn

from torch_geometric.nn.conv import MessagePassing

from jat_graph.checks.numbers import check_integer


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
        if x.dim() != 2 or x.size(-1) != width or not x.is_floating_point():
            wanted = f"[N, {self.in_channels if self.in_channels >= 0 else 'F_in'}]"
            raise ValueError(f"x must be floating point {wanted}, got {x.dtype} {list(x.shape)}")

    def __prepare_scriptable__(self) -> NoReturn:
        raise NotImplementedError(
            f"'{type(self).__name__}' does not support torch.jit.script; use torch.compile"
        )
