from .counting import count_votes
from .ranking import Ranking, rank_tokens
from .significance import query_peaks
from .threshold_product import sum_joined

__all__ = ["Ranking", "count_votes", "query_peaks", "rank_tokens", "sum_joined"]
