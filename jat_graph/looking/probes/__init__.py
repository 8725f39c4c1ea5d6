"""What a model knows of syntax and trees, asked of any encoder or decoder.

Needs the extra ``probes``.
"""

from jat_graph.looking.probes.attention import attention_probe
from jat_graph.looking.probes.findings import Findings
from jat_graph.looking.probes.graphs import graphs_and_trees
from jat_graph.looking.probes.heads import best_heads
from jat_graph.looking.probes.structural import structural_probe
from jat_graph.looking.probes.treebank import Sentence, read_treebank
from jat_graph.looking.probes.viewing import view
from jat_graph.looking.probes.words import WordReader

__all__ = [
    "Findings",
    "Sentence",
    "WordReader",
    "attention_probe",
    "best_heads",
    "graphs_and_trees",
    "read_treebank",
    "structural_probe",
    "view",
]
