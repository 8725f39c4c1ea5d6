"""Graphs of PyTorch Geometric from attention."""

from jat_graph.graphs.pairs import attention_graph

__all__ = ["attention_graph"]
