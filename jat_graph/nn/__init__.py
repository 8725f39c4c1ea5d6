"""Layers for PyG models and sequences: propagation along graphs, and attention with jump heads."""

from jat_graph.nn.convs import ClusterConv, JumpConv, StoneConv
from jat_graph.nn.jump_self_attention import JumpSelfAttention
from jat_graph.nn.self_attention import SelfAttention, SequenceSelfAttention

__all__ = [
    "ClusterConv",
    "JumpConv",
    "JumpSelfAttention",
    "SelfAttention",
    "SequenceSelfAttention",
    "StoneConv",
]
