"""Sparse attention patterns: which pairs a head may attend to, and how to run them.

A pattern is a rule for pairs of tokens (:class:`Pattern`); patterns join to unions and
intersections. :func:`pattern_attention` runs one on any input.
"""

from importlib import import_module
from typing import Any

from jat_graph.patterns.base import Intersection, KeyRange, Pattern, Union
from jat_graph.patterns.causal import Causal
from jat_graph.patterns.dilated_window import DilatedWindow
from jat_graph.patterns.documents import Documents
from jat_graph.patterns.fixed import Fixed
from jat_graph.patterns.global_tokens import GlobalTokens
from jat_graph.patterns.local_blocks import LocalBlocks
from jat_graph.patterns.parsing import parse_pattern
from jat_graph.patterns.presets import bigbird, longformer
from jat_graph.patterns.random_blocks import RandomBlocks
from jat_graph.patterns.reach import reaches_all
from jat_graph.patterns.strided import Strided
from jat_graph.patterns.window import Window

__all__ = [
    "Causal",
    "DilatedWindow",
    "Documents",
    "Fixed",
    "GlobalTokens",
    "Intersection",
    "KeyRange",
    "LocalBlocks",
    "Pattern",
    "PatternChoice",
    "RandomBlocks",
    "Strided",
    "Union",
    "Window",
    "bigbird",
    "explain_pattern",
    "longformer",
    "parse_pattern",
    "pattern_attention",
    "reaches_all",
]

# Running a pattern is the business of attention, which knows the rules; users find it here.
_RUNNING = ("PatternChoice", "explain_pattern", "pattern_attention")


def __getattr__(name: str) -> Any:
    if name not in _RUNNING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("jat_graph.attention.patterns"), name)
