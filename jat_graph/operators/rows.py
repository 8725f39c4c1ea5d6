"""The votes on all pairs in blocks of queries: memory for one block."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import torch
from torch import Tensor

from jat_graph.kernels import count_votes
from jat_graph.masks.tokens import TokenMask
from jat_graph.operators.threshold import KEPT_KEYS
from jat_graph.voting.ballot import Ballot
from jat_graph.voting.rule import sum_soft_votes
from jat_graph.voting.scores import BLOCK


class VoteRows:
    """Hard votes on all pairs in blocks of queries, counted anew whenever they are gone through."""

    def __init__(self, ballot: Ballot) -> None:
        self.ballot = ballot
        with torch.no_grad():
            self._kept = ballot.columns() if ballot.num_keys <= KEPT_KEYS else None

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield which queries, and their votes ``[B, H, rows, L]``.

        Under a causal mask the columns after the last row of a block are left out.
        """
        batch, heads, length = self.ballot.source.shape
        height = max(1, BLOCK // max(1, batch * heads * length))
        for start in range(0, length, height):
            rows = slice(start, min(start + height, length))
            yield rows, self._count(rows)

    @torch.no_grad()
    def _count(self, rows: slice) -> Tensor:
        end = rows.stop if self.ballot.mask.causal else self.ballot.source.shape[2]
        parts = (
            count_votes(columns[..., :end], limits, rows) for columns, limits in self._blocks()
        )
        votes = reduce(torch.add, parts)
        clear_masked(votes, self.ballot.mask, rows)
        return votes

    def _blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield columns and limits of all keys at once, or of a block of them at a time."""
        if self._kept is not None:
            yield self._kept
        else:
            yield from self.ballot.column_blocks(BLOCK)


def clear_masked(
    votes: Tensor,  # [B, H, rows, L], or without the columns that no row may see; written
    mask: TokenMask,
    rows: slice,
) -> None:
    """Set hard votes to 0 where there is no edge: on the diagonal, and where M says so."""
    if mask.causal:
        votes.tril_(rows.start - 1)
    else:
        # PyTorch's compiler warns of `diagonal`.
        votes.view(*votes.shape[:2], -1)[..., rows.start :: votes.size(-1) + 1].zero_()
    if mask.pairs is not None:
        votes.masked_fill_(~mask.pairs[:, :, rows, : votes.size(-1)], 0.0)


def soft_votes(ballot: Ballot) -> Tensor:  # [B, H, L, L]
    """Return the soft votes on all pairs, 0 where there is no edge."""
    votes = sum_soft_votes(ballot.rule, *ballot.key_scores())
    return votes.masked_fill(~ballot.edge_mask(), 0.0)
