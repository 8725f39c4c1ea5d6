"""Pictures of heads and attention patterns: the names of :mod:`jat_graph.looking.viz`."""

from jat_graph.looking.viz import *
from jat_graph.looking.viz import __all__ as __all__
