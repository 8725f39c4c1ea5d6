"""What all tokens read exactly: the blocks around a token, and the keys of global tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from jat_graph.attention.cluster_parts import (
    Gradients,
    Kept,
    Sums,
    Tokens,
    draw_mask,
    masked,
    numbers_at_a_time,
)


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

    def read(self, sums: Sums, kept: Kept) -> None:
        """Add what the tokens read there."""
        for head, blocks, inside in self._pieces():
            query, *own = (
                x[head, inside].view(-1, self.block, x.size(-1)) for x in (self.tokens.query, *sums)
            )
            scores = self._scores(head, blocks, query)
            value = self._around(self.tokens.value[head], blocks)
            Sums(*own).add(scores, value, draw_mask(scores, kept))

    def differentiate(self, back: Gradients, kept: Kept) -> None:
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
