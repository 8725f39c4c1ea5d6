"""Jump attention: propagated queries and keys, and the softmax over their products."""

from jat_graph.attention.api import jump_attention, jump_operator

__all__ = ["jump_attention", "jump_operator"]
