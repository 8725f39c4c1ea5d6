"""The graph as something that multiplies: one operator class a structure."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from jat_graph.operators.backends import (
        BackendChoice,
        Workload,
        build_operator,
        choose_backend,
        unsupported,
        work_for,
    )
    from jat_graph.operators.base import NormalizedOperator, Operator, PowerOperator
    from jat_graph.operators.blocked import BlockedOperator
    from jat_graph.operators.dense import DenseOperator
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
    "Workload",
    "build_operator",
    "choose_backend",
    "laplacian_eigenvalues",
    "unsupported",
    "work_for",
]

# Imported at their first use: nobody waits for what is not used.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["NormalizedOperator", "Operator", "PowerOperator"],
        "blocked": ["BlockedOperator"],
        "backends": [
            "BackendChoice",
            "Workload",
            "build_operator",
            "choose_backend",
            "unsupported",
            "work_for",
        ],
        "dense": ["DenseOperator"],
        "sparse": ["SparseOperator"],
        "sparse_stones": ["SparseStoneOperator"],
        "spectrum": ["laplacian_eigenvalues"],
        "stones": ["ShardStoneOperator", "StoneOperator"],
        "threshold": ["ThresholdOperator"],
    },
)
