"""How patterns are run: four backends, the choice among them, and attention as a function."""

from jat_graph.attention.patterns.api import explain_pattern, pattern_attention
from jat_graph.attention.patterns.backends import PatternChoice

__all__ = [
    "PatternChoice",
    "explain_pattern",
    "pattern_attention",
]
