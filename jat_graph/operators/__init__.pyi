from .backends import BackendChoice
from .base import DenseOperator, NormalizedOperator, Operator, PowerOperator
from .blocked import BlockedOperator
from .sparse import SparseOperator
from .sparse_stones import SparseStoneOperator
from .spectrum import laplacian_eigenvalues
from .stones import ShardStoneOperator, StoneOperator
from .threshold import ThresholdOperator

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
