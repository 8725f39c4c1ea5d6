"""The inner loops: one file an operation, each in torch, in numba (CPU) and in Triton (CUDA)."""

from jat_graph.kernels.counting import count_votes
from jat_graph.kernels.ranking import Ranking, rank_tokens
from jat_graph.kernels.running import running_sums
from jat_graph.kernels.significance import query_peaks
from jat_graph.kernels.stone_walk import StoneScores, give_back, share_out
from jat_graph.kernels.threshold_product import sum_joined

__all__ = [
    "Ranking",
    "StoneScores",
    "count_votes",
    "give_back",
    "query_peaks",
    "rank_tokens",
    "running_sums",
    "share_out",
    "sum_joined",
]
