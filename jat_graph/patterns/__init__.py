"""Sparse attention patterns: which pairs a head may attend to, and how to run them.

A pattern is a rule for pairs of tokens (:class:`Pattern`); patterns join to unions and
intersections. :func:`pattern_attention` runs one on any input.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import lazy_loader

if TYPE_CHECKING:
    from jat_graph.patterns.base import Intersection, KeyRange, Pattern, Union
    from jat_graph.patterns.documents import Documents
    from jat_graph.patterns.factorised import Fixed, Strided, reaches_all
    from jat_graph.patterns.parsing import bigbird, longformer, parse_pattern
    from jat_graph.patterns.positions import (
        Causal,
        DilatedWindow,
        GlobalTokens,
        LocalBlocks,
        RandomBlocks,
        Window,
    )

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

# Imported at their first use: nobody waits for what is not used.
_own, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["Intersection", "KeyRange", "Pattern", "Union"],
        "documents": ["Documents"],
        "factorised": ["Fixed", "Strided", "reaches_all"],
        "parsing": ["bigbird", "longformer", "parse_pattern"],
        "positions": [
            *("Causal", "DilatedWindow", "GlobalTokens", "Window"),
            *("LocalBlocks", "RandomBlocks"),
        ],
    },
)


def __getattr__(name: str) -> Any:
    if name in ("PatternChoice", "explain_pattern", "pattern_attention"):  # attention runs them
        return getattr(import_module("jat_graph.attention.patterns"), name)
    return _own(name)
