"""Layers for PyG models: propagation along a graph, and attention whose heads jump."""

from jat_graph.nn.jump_conv import JumpConv
from jat_graph.nn.jump_self_attention import JumpSelfAttention

__all__ = ["JumpConv", "JumpSelfAttention"]
