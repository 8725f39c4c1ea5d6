"""The paper's experiments; the code is in :mod:`jat_graph.lab.studies`."""

from jat_graph.lab.studies import *  # noqa: F403
from jat_graph.lab.studies import __all__ as __all__
