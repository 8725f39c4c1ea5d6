"""Keys with exact scores: those around a token, of global tokens, and the best of its cluster."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.clusters import cluster_sizes
from jat_graph.attention.cluster_parts import (
    Dropout,
    Gradients,
    Sums,
    Tokens,
    draw_mask,
    masked,
    numbers_at_a_time,
    rows,
)

TILE = 32  # tokens of one cluster that read its best keys together


class NearKeys:
    """The keys in a token's own block, the one before and the one after."""

    def __init__(self, tokens: Tokens, scale: float) -> None:
        self.tokens, self.scale, self.block = tokens, scale, tokens.block
        # Scores of so many blocks stay in the cache of a core.
        size = numbers_at_a_time(tokens.key.device)
        self.step = max(1, size // (3 * self.block**2))

    def _around(self, x: Tensor, blocks: slice) -> Tensor:  # of one head, [blocks, 3 · block, D]
        step = self.block * x.size(-1)  # each overlaps the next
        size = blocks.stop - blocks.start, 3 * self.block, x.size(-1)
        return x.as_strided(size, (step, *x.stride()), x.storage_offset() + blocks.start * step)

    def _pieces(self) -> Iterator[tuple[int, slice, slice]]:
        """Yield some blocks of each head, as blocks and as tokens."""
        for head in range(self.tokens.heads):
            for start in range(0, self.tokens.blocks, self.step):
                blocks = slice(start, min(start + self.step, self.tokens.blocks))
                yield head, blocks, slice(start * self.block, blocks.stop * self.block)

    def _scores(self, head: int, blocks: slice, query: Tensor) -> Tensor:
        scores = (query * self.scale) @ self._around(self.tokens.key[head], blocks).mT
        first = self.block if blocks.start == 0 else 0  # nothing is before the first block
        scores[:1, :, :first] = -torch.inf
        for back in (1, 2):  # what comes after the last token
            number = self.tokens.blocks - back - blocks.start
            if 0 <= number < len(scores):
                end = self.tokens.length - (self.tokens.blocks - back - 1) * self.block
                scores[number, :, end:] = -torch.inf
        return scores  # [blocks, block, 3 · block]

    def read(self, sums: Sums, kept: Dropout) -> None:
        """Add what the tokens read there."""
        for head, blocks, inside in self._pieces():
            query, *own = (
                x[head, inside].view(-1, self.block, x.size(-1)) for x in (self.tokens.query, *sums)
            )
            scores = self._scores(head, blocks, query)
            value = self._around(self.tokens.value[head], blocks)
            Sums(*own).add(scores, value, draw_mask(scores, kept))

    def differentiate(self, back: Gradients, kept: Dropout) -> None:
        """Add the gradients by these keys."""
        for head, blocks, inside in self._pieces():
            query, grad, delta, shift, by_query = (
                x[head, inside].view(-1, self.block, x.size(-1))
                for x in (self.tokens.query, back.grad, back.delta, back.shift, back.query)
            )
            weights = self._scores(head, blocks, query).sub_(shift).exp_()
            mask = draw_mask(weights, kept)
            value = self._around(self.tokens.value[head], blocks)[..., :-1]
            by_score = masked(grad @ value.mT, mask).sub_(delta).mul_(weights).mul_(self.scale)
            by_query += by_score @ self._around(self.tokens.key[head], blocks)
            self._add(back.value[head, :, :-1], blocks, masked(weights, mask).mT @ grad)
            self._add(back.key[head], blocks, by_score.mT @ query)

    def _add(self, total: Tensor, blocks: slice, around: Tensor) -> None:
        for number, part in enumerate(torch.split(around, self.block, dim=1)):
            start = (blocks.start + number) * self.block
            inside = total[start : start + len(around) * self.block]
            inside += part.reshape(-1, part.size(-1))


class GlobalKeys(NearKeys):
    """The keys of global tokens, the same for all blocks."""

    def __init__(self, tokens: Tokens, scale: float) -> None:
        super().__init__(tokens, scale)
        size = numbers_at_a_time(tokens.key.device)
        self.step = max(1, size // (tokens.num_global * self.block))

    def _around(self, x: Tensor, blocks: slice) -> Tensor:  # of one head, [1, g, D]
        return self.tokens.of_global(x.unsqueeze(0))

    def _scores(self, head: int, blocks: slice, query: Tensor) -> Tensor:  # [blocks, block, g]
        return (query * self.scale) @ self._around(self.tokens.key[head], blocks).mT

    def _add(self, total: Tensor, blocks: slice, around: Tensor) -> None:
        self._around(total, blocks).add_(around.sum(0))


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

    def read(self, sums: Sums, kept: Dropout) -> None:
        """Add what the tokens read there."""
        for token, best, empty in self.pieces:
            query = rows(self.tokens.query, token)
            key, value = (rows(x, best) for x in (self.tokens.key, self.tokens.value))
            own = Sums(*(rows(x, token) for x in sums))
            scores = self._scores(token, best, query, key)
            mask = draw_mask(scores, kept)
            if mask is not None:  # what is repeated must not be another number
                mask = torch.where(empty.unsqueeze(-1), mask[:, :1], mask)
            own.add(scores, value, mask)
            for x, part in zip(sums, own, strict=True):
                x.flatten(0, 1).index_copy_(0, token.flatten(), part.flatten(0, 1))

    def differentiate(self, back: Gradients, kept: Dropout) -> None:
        """Add the gradients by these keys."""
        for token, best, empty in self.pieces:
            query = rows(self.tokens.query, token)
            key, value = (rows(x, best) for x in (self.tokens.key, self.tokens.value))
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
