"""Standard scores of one shard of a sequence, where other processes have the rest."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.adjacency.scores import QueryKeyScores, full_precision, score_dtype
from jat_graph.adjacency.standard import (
    BLOCK,
    Moments,
    above_noise,
    causal_features,
    centred_so_far,
    inverse,
    squares_of,
    weights,
)
from jat_graph.masks.shards import SequenceShard
from jat_graph.masks.tokens import TokenMask


class ShardScores(QueryKeyScores):
    """Scores of some tokens of a sequence to keys of all of them: L is the length of the whole.

    Queries and keys are given of the shard alone, ``[B, H, L_r, D]``.
    """

    def __init__(self, query: Tensor, key: Tensor, scale: float, shard: SequenceShard) -> None:
        super().__init__(query, key, scale)
        self.shard = shard
        self.shape = torch.Size((*query.shape[:2], shard.total))  # B, H, L

    def significance(self, queries: Tensor | None, seen: Tensor) -> Tensor:
        """Return max_i X_ij − mean_i X_ij over some queries i, for every key j: ``[B, H, L]``.

        Each process measures its own keys.
        """
        query = self.query
        query = self.shard.gather(query) if queries is None else self.shard.at(query, queries)
        own = QueryKeyScores(query, self.key, self.scale).significance(None, seen)
        return self.shard.gather(own.unsqueeze(-1)).squeeze(-1)

    def keys(self, index: Tensor | None) -> Tensor:
        return self.shard.gather(self.key) if index is None else self.shard.at(self.key, index)


def shard_features(
    query: Tensor, key: Tensor, scale: float, mask: TokenMask
) -> tuple[Tensor, Tensor]:  # [B, H, L_r, D], as all of them
    """Return queries and keys whose scaled products are the standard scores of all tokens.

    Two sums over all processes: the number of tokens with the means, D of each side, then the
    spreads, D×D of each. In causal order those over the processes before.
    """
    assert mask.shard is not None
    dtype = score_dtype(query, key)
    if mask.causal:
        both = torch.stack([query.to(dtype), key.to(dtype)], dim=1)
        before = _moments_before(both, mask.valid, mask.shard)
        return causal_features(query, key, scale, mask.valid, before)[:2]
    both = torch.stack([query.to(dtype), key.to(dtype)])  # [2, B, H, L_r, D]
    with torch.no_grad(), full_precision(query.device):
        inside = weights(mask.valid, both)
        ones = torch.ones_like(both[..., :1])
        sums = mask.shard.sum((inside * torch.cat([both, ones], dim=-1)).sum(-2, keepdim=True))
        means, count = sums[..., :-1], sums[0, ..., -1:]
        means = means / count.clamp(min=1)
        centred = both - means
        centred = centred * inside * above_noise(centred, both)
        spread = mask.shard.sum(centred.mT @ centred)
        total = spread.prod(0).sum((-1, -2))[..., None, None]
        deviation = inverse(total, count.clamp(min=1) * scale**-1)
    return (both[0] - means[0]) * deviation, both[1] - means[1]


@torch.no_grad()
def _moments_before(x: Tensor, valid: Tensor | None, shard: SequenceShard) -> Moments:
    """Return what earlier shards leave behind, by the features ``[B, 2, H, L_r, D]`` of each."""
    nothing = Moments.of_nothing(x[:, 0])
    with full_precision(x.device):
        inside = weights(valid, x)
        number = shard.before(nothing.number + inside.sum((-1, -2), dtype=torch.long).unsqueeze(-1))
        total = shard.before((inside.unsqueeze(1) * x).sum(-2, keepdim=True))
        before = nothing._replace(number=number, total=total)
        centred, _, numbers, _ = centred_so_far(x, valid, before)
        stop = numbers[..., -1:] // BLOCK * BLOCK  # tokens in complete blocks
        complete = centred * (numbers <= stop)[:, None, ..., None]
        spreads = shard.each(torch.stack([y.mT @ y for y in (complete, centred)]))
        ends = shard.each((stop > number).long())  # whether a block becomes complete
        spread, squares = before.spread, before.squares
        for (some, own), end in zip(spreads[: shard.rank], ends[: shard.rank], strict=True):
            squares = torch.where(end > 0, squares_of(spread + some).unsqueeze(-1), squares)
            spread = spread + own
    return before._replace(spread=spread, squares=squares)
