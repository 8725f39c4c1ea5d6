"""Attention graphs of many texts as a data set of PyTorch Geometric."""

from jat_graph.looking.data.attention_graphs import AttentionGraphs

__all__ = ["AttentionGraphs"]
