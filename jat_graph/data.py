"""Attention graphs as a data set: the names of :mod:`jat_graph.looking.data`."""

from jat_graph.looking.data import *
from jat_graph.looking.data import __all__ as __all__
