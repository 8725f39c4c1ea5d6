"""The best keys of clusters, which their tokens read with exact scores."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.clusters import cluster_sizes
from jat_graph.attention.cluster_parts import (
    Gradients,
    Kept,
    Sums,
    Tokens,
    draw_mask,
    masked,
    numbers_at_a_time,
    rows,
)

TILE = 32  # tokens of one cluster that read its best keys together


class BestKeys:
    """The keys that a token's cluster scores highest, but those in the blocks around it."""

    def __init__(
        self,
        tokens: Tokens,
        joined: Tensor,  # [H, n]
        best: Tensor,  # [H, m, keys]
        scale: float,
    ) -> None:
        (heads, length), (_, clusters, keys) = joined.shape, best.shape
        self.tokens, self.scale = tokens, scale
        # Tokens sorted by cluster, each cluster in tiles of its own.
        of_head = torch.arange(heads, device=joined.device).unsqueeze(-1)
        members = (joined + of_head * clusters).flatten()
        order = members.sort(stable=True).indices
        sizes = cluster_sizes(joined, clusters).flatten()
        tiles = (sizes + TILE - 1) // TILE
        number = torch.arange(len(sizes), device=sizes.device)
        start = (tiles.cumsum(0) - tiles) * TILE - (sizes.cumsum(0) - sizes)
        slot = start[members[order]] + torch.arange(len(order), device=order.device)
        row = order + order // length * (tokens.query.size(1) - length)
        token = order.new_full((int(tiles.sum()) * TILE,), -1)
        token = token.scatter_(0, slot, row).view(-1, TILE)
        empty = token < 0  # such slots repeat the first token of their tile
        token = torch.where(empty, token[:, :1], token)
        best = best + tokens.margin + of_head.unsqueeze(-1) * tokens.key.size(1)
        best = best.flatten(0, 1)[number.repeat_interleave(tiles)]  # [tiles, keys]
        width = keys * (TILE + tokens.key.size(-1) + tokens.value.size(-1))
        step = max(1, numbers_at_a_time(best.device) // width)
        pieces = (torch.split(x, step) for x in (token, best, empty))
        self.pieces = list(zip(*pieces, strict=True))

    def _scores(self, token: Tensor, best: Tensor, query: Tensor, key: Tensor) -> Tensor:
        scores = (query * self.scale) @ key.mT  # [tiles, TILE, keys]
        if self.tokens.margin:
            block, length = self.tokens.block, self.tokens.query.size(1)
            own = (token % length // block).int()
            others = (best % self.tokens.key.size(1) // block).int()
            # Blocks of keys are counted from the margin, which is one.
            near = (own.unsqueeze(-1) - others.unsqueeze(1) + 1).abs_() <= 1
            scores = scores.masked_fill_(near, -torch.inf)
        return scores

    def _rows(self, token: Tensor, best: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tokens = self.tokens
        return rows(tokens.query, token), rows(tokens.key, best), rows(tokens.value, best)

    def read(self, sums: Sums, kept: Kept) -> None:
        """Add what the tokens read there."""
        for token, best, empty in self.pieces:
            query, key, value = self._rows(token, best)
            own, scores = (
                Sums(*(rows(x, token) for x in sums)),
                self._scores(token, best, query, key),
            )
            mask = draw_mask(scores, kept)
            if mask is not None:  # what is repeated must not be another number
                mask = torch.where(empty.unsqueeze(-1), mask[:, :1], mask)
            own.add(scores, value, mask)
            for x, part in zip(sums, own, strict=True):
                x.flatten(0, 1).index_copy_(0, token.flatten(), part.flatten(0, 1))

    def differentiate(self, back: Gradients, kept: Kept) -> None:
        """Add the gradients by these keys."""
        for token, best, empty in self.pieces:
            query, key, value = self._rows(token, best)
            grad, delta, shift = (rows(x, token) for x in (back.grad, back.delta, back.shift))
            shift = shift.masked_fill_(empty.unsqueeze(-1), torch.inf)
            weights = self._scores(token, best, query, key).sub_(shift).exp_()
            mask = draw_mask(weights, kept)
            by_weight = masked(grad @ value[..., :-1].mT, mask)
            by_score = by_weight.sub_(delta).mul_(weights).mul_(self.scale)
            for total, index, part in (
                (back.query, token, by_score @ key),
                (back.key, best, by_score.mT @ query),
                (back.value, best, F.pad(masked(weights, mask).mT @ grad, (0, 1))),
            ):
                total.flatten(0, 1).index_add_(0, index.flatten(), part.flatten(0, 1))
