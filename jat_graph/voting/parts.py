"""Standard scores of one part of a sequence, where other processes have the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.masks.parts import Part
from jat_graph.masks.tokens import TokenMask
from jat_graph.voting.moments import (
    BLOCK,
    Moments,
    above_noise,
    centred_so_far,
    inverse,
    squares_of,
    weights,
)
from jat_graph.voting.scores import QueryKeyScores, full_precision, score_dtype
from jat_graph.voting.standard import causal_features


class PartScores(QueryKeyScores):
    """Scores of some tokens of a sequence to keys of all of them: L is the length of the whole.

    Args:
        query: Queries of this part ``[B, H, L_r, D]``.
        key: Keys of this part ``[B, H, L_r, D]``.
        scale: Factor after the product.
        part: Which part it is.
    """

    def __init__(self, query: Tensor, key: Tensor, scale: float, part: Part) -> None:
        super().__init__(query, key, scale)
        self.part = part

    @property
    def shape(self) -> tuple[int, int, int]:
        """Batch, heads and tokens of all parts: ``(B, H, L)``."""
        return *self.query.shape[:2], self.part.total

    def significance(self, queries: Tensor | None, seen: Tensor) -> Tensor:
        """Return max_i X_ij − mean_i X_ij over some queries i, for every key j: ``[B, H, L]``.

        Each process measures its own keys.
        """
        query = self.query
        query = self.part.gather(query) if queries is None else self.part.at(query, queries)
        own = QueryKeyScores(query, self.key, self.scale).significance(None, seen)
        return self.part.gather(own.unsqueeze(-1)).squeeze(-1)

    def _keys(self, index: Tensor | None) -> Tensor:
        return self.part.gather(self.key) if index is None else self.part.at(self.key, index)


def part_features(
    query: Tensor,  # [B, H, L_r, D]
    key: Tensor,  # [B, H, L_r, D]
    scale: float,
    mask: TokenMask,
) -> tuple[Tensor, Tensor]:  # [B, H, L_r, D] each
    """Return queries and keys whose scaled products are the standard scores of all tokens.

    Two sums over all processes: the number of tokens with the means, D of each side, then the
    spreads, D×D of each. In causal order those over the processes before.
    """
    assert mask.part is not None
    dtype = score_dtype(query, key)
    if mask.causal:
        before = _moments_before(query.to(dtype), key.to(dtype), mask.valid, mask.part)
        return causal_features(query, key, scale, mask.valid, before)[:2]
    both = torch.stack([query.to(dtype), key.to(dtype)])  # [2, B, H, L_r, D]
    with torch.no_grad(), full_precision(query.device):
        inside = weights(mask.valid, both)
        ones = torch.ones_like(both[..., :1])
        sums = mask.part.sum((inside * torch.cat([both, ones], dim=-1)).sum(-2, keepdim=True))
        means, count = sums[..., :-1], sums[0, ..., -1:]
        means = means / count.clamp(min=1)
        centred = both - means
        centred = centred * inside * above_noise(centred, both)
        spread = mask.part.sum(centred.mT @ centred)
        total = spread.prod(0).sum((-1, -2))[..., None, None]
        deviation = inverse(total, count.clamp(min=1) * scale**-1)
    return (both[0] - means[0]) * deviation, both[1] - means[1]


@torch.no_grad()
def _moments_before(
    query: Tensor,  # [B, H, L_r, D]
    key: Tensor,  # [B, H, L_r, D]
    valid: Tensor | None,  # [B|1, H|1, L_r]
    part: Part,
) -> Moments:
    """Return what the parts before this one leave behind."""
    nothing, x = Moments.of_nothing(query), torch.stack([query, key], dim=1)
    with full_precision(query.device):
        inside = weights(valid, query)
        number = part.before(nothing.number + inside.sum((-1, -2), dtype=torch.long).unsqueeze(-1))
        total = part.before((inside.unsqueeze(1) * x).sum(-2, keepdim=True))
        before = nothing._replace(number=number, total=total)
        centred, _, numbers, _ = centred_so_far(x, valid, before)
        stop = numbers[..., -1:] // BLOCK * BLOCK  # tokens in complete blocks
        complete = centred * (numbers <= stop)[:, None, ..., None]
        spreads = part.each(torch.stack([y.mT @ y for y in (complete, centred)]))
        ends = part.each((stop > number).long())  # whether a block becomes complete
        spread, squares = before.spread, before.squares
        for (some, own), end in zip(spreads[: part.rank], ends[: part.rank], strict=True):
            squares = torch.where(end > 0, squares_of(spread + some).unsqueeze(-1), squares)
            spread = spread + own
    return before._replace(spread=spread, squares=squares)
