"""The inner loops in Triton, for CUDA; what torch does as fast stays in torch."""

from jat_graph.kernels.cuda.counting import count as count
from jat_graph.kernels.cuda.ranking import rank as rank
from jat_graph.kernels.cuda.significance import peaks as peaks
from jat_graph.kernels.cuda.threshold_product import add_joined as add_joined
from jat_graph.kernels.portable.stone_walk import give as give
from jat_graph.kernels.portable.stone_walk import share as share
