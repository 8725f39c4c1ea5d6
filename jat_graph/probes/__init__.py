"""What a model knows of syntax, trees and senses, asked of any encoder or decoder.

Needs the extra ``probes``.
"""

from jat_graph.probes.findings import Findings
from jat_graph.probes.sentences import Sentence, read_treebank
from jat_graph.probes.syntax.attention import attention_probe
from jat_graph.probes.syntax.graphs import graphs_and_trees
from jat_graph.probes.syntax.heads import best_heads

__all__ = [
    "Findings",
    "Sentence",
    "attention_probe",
    "best_heads",
    "graphs_and_trees",
    "read_treebank",
]
