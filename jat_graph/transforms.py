"""Transforms of PyTorch Geometric; the code is in :mod:`jat_graph.graphs.transforms`."""

from jat_graph.graphs.transforms import AttentionToGraph

__all__ = ["AttentionToGraph"]
