"""The graph as something that multiplies: the names of :mod:`jat_graph.jumps.operators`."""

from jat_graph.jumps.operators import *
from jat_graph.jumps.operators import __all__ as __all__
