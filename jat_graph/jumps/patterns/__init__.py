"""Sparse attention patterns: which pairs a head may attend to, and how to run them.

A pattern is a rule for pairs of tokens (:class:`Pattern`); patterns join to unions and
intersections. :func:`pattern_attention` runs one on any input.
"""

import lazy_loader

# Imported at their first use, from the modules that __init__.pyi names.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
