"""Sparse attention patterns: which pairs a head may attend to, and how to run them.

A pattern is a rule for pairs of tokens (:class:`Pattern`); patterns join to unions and
intersections. :func:`pattern_attention` runs one on any input.
"""

from jat_graph.patterns.algebra import Intersection, Union
from jat_graph.patterns.base import Pattern
from jat_graph.patterns.causal import Causal
from jat_graph.patterns.global_tokens import GlobalTokens
from jat_graph.patterns.parsing import parse_pattern
from jat_graph.patterns.window import Window

__all__ = [
    "Causal",
    "GlobalTokens",
    "Intersection",
    "Pattern",
    "Union",
    "Window",
    "parse_pattern",
]
