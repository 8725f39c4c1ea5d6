"""The inner loops in numba, for the CPU; what torch does as fast stays in torch."""

from jat_graph.kernels.cpu.counting import count as count
from jat_graph.kernels.cpu.ranking import rank as rank
from jat_graph.kernels.cpu.stone_walk import give as give
from jat_graph.kernels.cpu.stone_walk import share as share
from jat_graph.kernels.cpu.threshold_product import add_joined as add_joined
from jat_graph.kernels.portable import peaks as peaks
