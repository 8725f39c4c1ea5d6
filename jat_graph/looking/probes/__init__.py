"""What a model knows of syntax, trees and senses, asked of any encoder or decoder.

Needs the extra ``probes``.
"""

from jat_graph.looking.probes.atlas import Atlas, context_atlas
from jat_graph.looking.probes.attention import attention_probe
from jat_graph.looking.probes.contexts import Context, read_contexts
from jat_graph.looking.probes.corpora import open_wordnet, read_evaluation, read_semcor
from jat_graph.looking.probes.distances import tree_distances
from jat_graph.looking.probes.findings import Findings, compare_findings
from jat_graph.looking.probes.graphs import graphs_and_trees
from jat_graph.looking.probes.heads import best_heads
from jat_graph.looking.probes.ratio import similarity_ratio
from jat_graph.looking.probes.states import sense_probe
from jat_graph.looking.probes.structural import structural_probe
from jat_graph.looking.probes.treebank import Sentence, read_treebank
from jat_graph.looking.probes.trees import view
from jat_graph.looking.probes.words import WordReader

__all__ = [
    "Atlas",
    "Context",
    "Findings",
    "Sentence",
    "WordReader",
    "attention_probe",
    "best_heads",
    "compare_findings",
    "context_atlas",
    "graphs_and_trees",
    "open_wordnet",
    "read_contexts",
    "read_evaluation",
    "read_semcor",
    "read_treebank",
    "sense_probe",
    "similarity_ratio",
    "structural_probe",
    "tree_distances",
    "view",
]
