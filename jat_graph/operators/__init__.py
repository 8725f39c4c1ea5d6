"""The graph as something that multiplies: one operator class a structure."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from jat_graph.operators.backends import BackendChoice
    from jat_graph.operators.base import DenseOperator, NormalizedOperator, Operator, PowerOperator
    from jat_graph.operators.blocked import BlockedOperator
    from jat_graph.operators.sparse import SparseOperator
    from jat_graph.operators.sparse_stones import SparseStoneOperator
    from jat_graph.operators.spectrum import laplacian_eigenvalues
    from jat_graph.operators.stones import ShardStoneOperator, StoneOperator
    from jat_graph.operators.threshold import ThresholdOperator

__all__ = [
    "BackendChoice",
    "BlockedOperator",
    "DenseOperator",
    "NormalizedOperator",
    "Operator",
    "PowerOperator",
    "ShardStoneOperator",
    "SparseOperator",
    "SparseStoneOperator",
    "StoneOperator",
    "ThresholdOperator",
    "laplacian_eigenvalues",
]

# Imported at their first use: nobody waits for what is not used.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["DenseOperator", "NormalizedOperator", "Operator", "PowerOperator"],
        "blocked": ["BlockedOperator"],
        "backends": ["BackendChoice"],
        "sparse": ["SparseOperator"],
        "sparse_stones": ["SparseStoneOperator"],
        "spectrum": ["laplacian_eigenvalues"],
        "stones": ["ShardStoneOperator", "StoneOperator"],
        "threshold": ["ThresholdOperator"],
    },
)
