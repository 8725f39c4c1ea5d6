"""Layers for PyG models and sequences: propagation along graphs, and attention with jump heads."""

from jat_graph.nn.convs import ClusterConv, JumpConv, StoneConv
from jat_graph.nn.jump_self_attention import (
    DecoderSelfAttention,
    EncoderSelfAttention,
    JumpSelfAttention,
)
from jat_graph.nn.self_attention import (
    EncoderDecoderAttention,
    SelfAttention,
    SequenceSelfAttention,
)

__all__ = [
    "ClusterConv",
    "DecoderSelfAttention",
    "EncoderDecoderAttention",
    "EncoderSelfAttention",
    "JumpConv",
    "JumpSelfAttention",
    "SelfAttention",
    "SequenceSelfAttention",
    "StoneConv",
]
