"""The graph as something that multiplies: one operator class a structure."""

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
