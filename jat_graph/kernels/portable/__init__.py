"""The inner loops in plain torch: the definition that the others are tested against."""

from jat_graph.kernels.portable.counting import count
from jat_graph.kernels.portable.ranking import rank
from jat_graph.kernels.portable.significance import peaks
from jat_graph.kernels.portable.threshold_product import add_joined

__all__ = ["add_joined", "count", "peaks", "rank"]
