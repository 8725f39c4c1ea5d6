"""Layers for PyG models and sequences: propagation along graphs, and attention with jump heads."""

from jat_graph.nn.jump_conv import ClusterConv, JumpConv, StoneConv
from jat_graph.nn.jump_self_attention import (
    DecoderSelfAttention,
    EncoderDecoderAttention,
    EncoderSelfAttention,
    JumpSelfAttention,
)
from jat_graph.nn.self_attention import SelfAttention, SequenceSelfAttention, TripletAttention

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
    "TripletAttention",
]
