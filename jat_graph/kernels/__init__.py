"""The inner loops: one file an operation, each in torch, in numba (CPU) and in Triton (CUDA)."""

from jat_graph.kernels.counting import count_votes
from jat_graph.kernels.ranking import Ranking, rank_tokens
from jat_graph.kernels.significance import query_peaks
from jat_graph.kernels.threshold_product import sum_joined

__all__ = ["Ranking", "count_votes", "query_peaks", "rank_tokens", "sum_joined"]
