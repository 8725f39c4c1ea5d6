"""The graph as something that multiplies: one operator class a structure."""

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
