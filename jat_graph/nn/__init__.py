"""Layers for PyG models and sequences: propagation along graphs, and attention of many kinds."""

from jat_graph.nn.area_attention import AreaAttention
from jat_graph.nn.biblosa import BlockSelfAttention
from jat_graph.nn.feature_attention import SourceToToken
from jat_graph.nn.jump_conv import JumpConv
from jat_graph.nn.jump_self_attention import JumpSelfAttention
from jat_graph.nn.memory_compressed import MemoryCompressedAttention
from jat_graph.nn.relative_attention import RelativeAttention
from jat_graph.nn.stone_conv import StoneConv
from jat_graph.nn.tdmca import TDMCA
from jat_graph.nn.transformer_attention import (
    DecoderSelfAttention,
    EncoderDecoderAttention,
    EncoderSelfAttention,
)
from jat_graph.nn.triplet_attention import TripletAttention

__all__ = [
    "TDMCA",
    "AreaAttention",
    "BlockSelfAttention",
    "DecoderSelfAttention",
    "EncoderDecoderAttention",
    "EncoderSelfAttention",
    "JumpConv",
    "JumpSelfAttention",
    "MemoryCompressedAttention",
    "RelativeAttention",
    "SourceToToken",
    "StoneConv",
    "TripletAttention",
]
