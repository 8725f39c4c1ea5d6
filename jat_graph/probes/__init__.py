"""What a model knows of syntax, trees and senses, asked of any encoder or decoder.

Needs the extra ``probes``.
"""

from jat_graph.probes.findings import Findings
from jat_graph.probes.sentences import Sentence, read_treebank

__all__ = ["Findings", "Sentence", "read_treebank"]
