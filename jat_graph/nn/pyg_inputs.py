"""What layers along one graph take and refuse as PyG's own ``GCNConv`` does."""

from typing import NoReturn

import torch


def refuse_bipartite(layer: torch.nn.Module, x: object) -> None:
    """Refuse features of sources and of targets, as ``to_hetero`` hands them, in PyG's words."""
    if isinstance(x, tuple | list):
        raise ValueError(
            f"'{type(layer).__name__}' received a tuple of node features as input while this layer "
            "does not support bipartite message passing. Please try other layers such as "
            "'SAGEConv' or 'GraphConv' instead"
        )


def refuse_script(layer: torch.nn.Module) -> NoReturn:
    """Say what to do in place of ``torch.jit.script``, which torch itself gives up."""
    raise NotImplementedError(
        f"'{type(layer).__name__}' does not support torch.jit.script; use torch.compile"
    )
