"""Graphs of PyTorch Geometric from attention."""

from jat_graph.graphs.pairs import attention_graph, stone_graph, token_graph
from jat_graph.graphs.trees import tree_graph

__all__ = ["attention_graph", "stone_graph", "token_graph", "tree_graph"]
