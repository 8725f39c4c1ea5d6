"""The inner loops in Triton, for CUDA."""

from jat_graph.kernels.cuda.counting import count as count
from jat_graph.kernels.cuda.ranking import rank as rank
from jat_graph.kernels.cuda.significance import peaks as peaks
from jat_graph.kernels.cuda.threshold_product import add_joined as add_joined
