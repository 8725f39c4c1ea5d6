"""What a model knows of syntax and trees: the names of :mod:`jat_graph.looking.probes`."""

from jat_graph.looking.probes import *
from jat_graph.looking.probes import __all__ as __all__
