from .backends import BackendChoice
from .base import DenseOperator, NormalizedOperator, Operator, PowerOperator, laplacian_eigenvalues
from .sparse import SparseOperator
from .stones import SparseStoneOperator, StoneOperator
from .threshold import BlockedOperator, ThresholdOperator

__all__ = [
    "BackendChoice",
    "BlockedOperator",
    "DenseOperator",
    "NormalizedOperator",
    "Operator",
    "PowerOperator",
    "SparseOperator",
    "SparseStoneOperator",
    "StoneOperator",
    "ThresholdOperator",
    "laplacian_eigenvalues",
]
