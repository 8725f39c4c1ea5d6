"""The votes on all pairs in blocks of queries: memory for one block."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor

from jat_graph.adjacency.pairs import PairAdjacency
from jat_graph.adjacency.scores import BLOCK
from jat_graph.kernels import count_votes
from jat_graph.operators.base import KEPT_KEYS


class VoteRows:
    """Hard votes on all pairs in blocks of queries, counted anew whenever they are gone through."""

    def __init__(self, pairs: PairAdjacency) -> None:
        self.pairs = pairs
        with torch.no_grad():
            self._kept = pairs.columns() if pairs.num_keys <= KEPT_KEYS else None

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield which queries, and their votes ``[B, H, rows, L]``.

        Under a causal mask the columns after the last row of a block are left out.
        """
        batch, heads, length = self.pairs.source.shape
        height = max(1, BLOCK // max(1, batch * heads * length))
        for start in range(0, length, height):
            rows = slice(start, min(start + height, length))
            yield rows, self._count(rows)

    @torch.no_grad()
    def _count(self, rows: slice) -> Tensor:
        end = rows.stop if self.pairs.mask.causal else self.pairs.source.shape[2]
        blocks = self.pairs.column_blocks(BLOCK) if self._kept is None else [self._kept]
        parts = (count_votes(columns[..., :end], limits, rows) for columns, limits in blocks)
        votes = reduce(torch.add, parts)
        self.pairs.clear_masked(votes, rows)
        return votes
