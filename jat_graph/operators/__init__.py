"""The graph as something that multiplies: one operator class a structure."""

from jat_graph.operators.base import Operator, PowerOperator
from jat_graph.operators.blocked import BlockedOperator
from jat_graph.operators.choice import (
    BackendChoice,
    Workload,
    build_operator,
    choose_backend,
    unsupported,
)
from jat_graph.operators.dense import DenseOperator
from jat_graph.operators.normalized import NormalizedOperator
from jat_graph.operators.sparse import SparseOperator
from jat_graph.operators.sparse_stones import SparseStoneOperator
from jat_graph.operators.spectrum import laplacian_eigenvalues
from jat_graph.operators.stones import PartStoneOperator, StoneOperator
from jat_graph.operators.threshold import ThresholdOperator

__all__ = [
    "BackendChoice",
    "BlockedOperator",
    "DenseOperator",
    "NormalizedOperator",
    "Operator",
    "PartStoneOperator",
    "PowerOperator",
    "SparseOperator",
    "SparseStoneOperator",
    "StoneOperator",
    "ThresholdOperator",
    "Workload",
    "build_operator",
    "choose_backend",
    "laplacian_eigenvalues",
    "unsupported",
]
