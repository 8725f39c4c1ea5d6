"""What a model knows of syntax, trees and senses, asked of any encoder or decoder.

Needs the extra ``probes``.
"""

from jat_graph.probes.atlas.build import Atlas, context_atlas
from jat_graph.probes.atlas.contexts import Context, read_contexts
from jat_graph.probes.comparing import compare_findings
from jat_graph.probes.findings import Findings
from jat_graph.probes.geometry.distances import relation_distances, tree_distances
from jat_graph.probes.geometry.pictures import draw_tree_arcs, draw_tree_plane
from jat_graph.probes.geometry.structural import structural_probe
from jat_graph.probes.meaning.evaluation import read_evaluation
from jat_graph.probes.meaning.marked import MarkedSentence, MarkedWord
from jat_graph.probes.meaning.ratio import similarity_ratio
from jat_graph.probes.meaning.semcor import read_semcor
from jat_graph.probes.meaning.senses import sense_probe
from jat_graph.probes.meaning.wordnet import WordNet, open_wordnet
from jat_graph.probes.syntax.attention import attention_probe
from jat_graph.probes.syntax.graphs import graphs_and_trees
from jat_graph.probes.syntax.heads import best_heads
from jat_graph.probes.treebank import Sentence, read_treebank
from jat_graph.probes.viewing import view

__all__ = [
    "Atlas",
    "Context",
    "Findings",
    "MarkedSentence",
    "MarkedWord",
    "Sentence",
    "WordNet",
    "attention_probe",
    "best_heads",
    "compare_findings",
    "context_atlas",
    "draw_tree_arcs",
    "draw_tree_plane",
    "graphs_and_trees",
    "open_wordnet",
    "read_contexts",
    "read_evaluation",
    "read_semcor",
    "read_treebank",
    "relation_distances",
    "sense_probe",
    "similarity_ratio",
    "structural_probe",
    "tree_distances",
    "view",
]
