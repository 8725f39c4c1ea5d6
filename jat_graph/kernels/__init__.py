"""The inner loops: one file an operation, each in torch, in numba (CPU) and in Triton (CUDA)."""

from typing import TYPE_CHECKING

import lazy_loader

if TYPE_CHECKING:
    from jat_graph.kernels.counting import count_votes
    from jat_graph.kernels.ranking import Ranking, rank_tokens
    from jat_graph.kernels.significance import query_peaks
    from jat_graph.kernels.threshold_product import sum_joined

__all__ = [
    "Ranking",
    "count_votes",
    "query_peaks",
    "rank_tokens",
    "sum_joined",
]

# Imported at their first use: nobody waits for what is not used.
__getattr__, __dir__, _ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "counting": ["count_votes"],
        "ranking": ["Ranking", "rank_tokens"],
        "significance": ["query_peaks"],
        "threshold_product": ["sum_joined"],
    },
)
