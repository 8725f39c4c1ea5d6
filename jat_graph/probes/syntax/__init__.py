"""What attention and jump graphs know of syntax, measured on treebanks."""

from jat_graph.probes.syntax.attention import attention_probe
from jat_graph.probes.syntax.graphs import graphs_and_trees
from jat_graph.probes.syntax.heads import best_heads

__all__ = ["attention_probe", "best_heads", "graphs_and_trees"]
