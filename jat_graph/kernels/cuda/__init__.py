"""The inner loops in Triton, for CUDA."""

from jat_graph.kernels.cuda.counting import count
from jat_graph.kernels.cuda.ranking import rank
from jat_graph.kernels.cuda.significance import peaks
from jat_graph.kernels.cuda.threshold_product import add_joined

__all__ = ["add_joined", "count", "peaks", "rank"]
