from .backends import BackendChoice
from .base import DenseOperator, NormalizedOperator, Operator, laplacian_eigenvalues
from .sparse import SparseOperator
from .stones import SparseStoneOperator, StoneOperator
from .threshold import BlockedOperator, ThresholdOperator

__all__ = [
    "BackendChoice",
    "BlockedOperator",
    "DenseOperator",
    "NormalizedOperator",
    "Operator",
    "SparseOperator",
    "SparseStoneOperator",
    "StoneOperator",
    "ThresholdOperator",
    "laplacian_eigenvalues",
]
