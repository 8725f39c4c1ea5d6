"""Sparse attention patterns: the names of :mod:`jat_graph.jumps.patterns`."""

from jat_graph.jumps.patterns import *
from jat_graph.jumps.patterns import __all__ as __all__
