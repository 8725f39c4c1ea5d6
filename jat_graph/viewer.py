"""One file that shows heads in any browser: the names of :mod:`jat_graph.looking.viewer`."""

from jat_graph.looking.viewer import *
from jat_graph.looking.viewer import __all__ as __all__
