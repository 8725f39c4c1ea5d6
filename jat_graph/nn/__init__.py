"""Layers for PyG models and sequences: propagation along graphs, and attention with jump heads."""

from jat_graph.nn.cluster_conv import ClusterConv
from jat_graph.nn.jump_conv import JumpConv
from jat_graph.nn.jump_self_attention import JumpSelfAttention
from jat_graph.nn.self_attention import SelfAttention, SequenceSelfAttention
from jat_graph.nn.stone_conv import StoneConv
from jat_graph.nn.transformer_attention import (
    DecoderSelfAttention,
    EncoderDecoderAttention,
    EncoderSelfAttention,
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
