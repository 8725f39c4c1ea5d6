from .attend import Kernel, attend, choose, register_kernel
from .choice import Choice, Rule
from .tree import Tree

__all__ = ["Choice", "Kernel", "Rule", "Tree", "attend", "choose", "register_kernel"]
