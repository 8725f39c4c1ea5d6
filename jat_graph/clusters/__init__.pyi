from .attend import Kernel, attend, choose, register_kernel
from .choice import Choice, Rule
from .tree import Level, Tree

__all__ = ["Choice", "Kernel", "Level", "Rule", "Tree", "attend", "choose", "register_kernel"]
