"""Sparse attention patterns: which pairs a head may attend to, and how to run them.

A pattern is a rule for pairs of tokens (:class:`Pattern`); patterns join to unions and
intersections. :func:`pattern_attention` runs one on any input.
"""

from importlib import import_module
from typing import Any

import lazy_loader

_OF_ATTENTION = ("PatternChoice", "explain_pattern", "pattern_attention")  # which runs patterns

# Imported at their first use, from the modules that __init__.pyi names.
_own, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += _OF_ATTENTION


def __getattr__(name: str) -> Any:
    if name in _OF_ATTENTION:
        return getattr(import_module("jat_graph.attention.patterns"), name)
    return _own(name)
