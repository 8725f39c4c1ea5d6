"""Reports on heads, fidelity and calibration: the names of :mod:`jat_graph.looking.inspection`."""

from jat_graph.looking.inspection import *
from jat_graph.looking.inspection import __all__ as __all__
