"""Sparse attention patterns: which pairs a head may attend to, and how to run them.

A pattern is a rule for pairs of tokens (:class:`Pattern`); patterns join to unions and
intersections. :func:`pattern_attention` runs one on any input.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Imported at their first use. Running a pattern is the business of attention.
_MODULE_OF = {
    "Causal": "jat_graph.patterns.causal",
    "DilatedWindow": "jat_graph.patterns.dilated_window",
    "Documents": "jat_graph.patterns.documents",
    "Fixed": "jat_graph.patterns.fixed",
    "GlobalTokens": "jat_graph.patterns.global_tokens",
    "Intersection": "jat_graph.patterns.base",
    "KeyRange": "jat_graph.patterns.base",
    "LocalBlocks": "jat_graph.patterns.local_blocks",
    "Pattern": "jat_graph.patterns.base",
    "PatternChoice": "jat_graph.attention.patterns",
    "RandomBlocks": "jat_graph.patterns.random_blocks",
    "Strided": "jat_graph.patterns.strided",
    "Union": "jat_graph.patterns.base",
    "Window": "jat_graph.patterns.window",
    "bigbird": "jat_graph.patterns.presets",
    "explain_pattern": "jat_graph.attention.patterns",
    "longformer": "jat_graph.patterns.presets",
    "parse_pattern": "jat_graph.patterns.parsing",
    "pattern_attention": "jat_graph.attention.patterns",
    "reaches_all": "jat_graph.patterns.reach",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
