from .api import clustered_attention
from .attend import Kernel, attend, choose, register_kernel
from .choice import Choice, Rule
from .settings import ClusterGraph
from .tree import Tree

__all__ = [
    "Choice",
    "ClusterGraph",
    "Kernel",
    "Rule",
    "Tree",
    "attend",
    "choose",
    "clustered_attention",
    "register_kernel",
]
