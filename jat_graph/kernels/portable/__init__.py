"""The inner loops in plain torch: the definition that the others are tested against."""

from jat_graph.kernels.portable.counting import count as count
from jat_graph.kernels.portable.ranking import rank as rank
from jat_graph.kernels.portable.significance import peaks as peaks
from jat_graph.kernels.portable.stone_walk import give as give
from jat_graph.kernels.portable.stone_walk import share as share
from jat_graph.kernels.portable.threshold_product import add_joined as add_joined
