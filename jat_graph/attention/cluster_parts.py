"""The three parts of attention by clusters, each with its gradients: around, best keys, the rest.

They read some heads of one sequence, in float32 or float64, and add up what they read in one
softmax. Backward takes the same weights, e to the scores less a shift, and the sum of all, so that
the gradients of the parts just add up, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.clusters import cluster_sizes

TILE = 32  # tokens of one cluster that read its best keys together
CACHE = 2**18  # numbers that a core works on at a time: 1 MiB in float32
NOTHING = -1e30  # where nothing was read; infinity would give NaN

Kept: TypeAlias = "tuple[float, torch.Generator] | None"  # share that dropout keeps


class Tokens:
    """Some heads of one sequence: whole blocks, and room for one more on both sides of the keys."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, block: int) -> None:
        self.heads, self.length, _ = query.shape
        self.margin, self.block = block, block or self.length
        self.blocks = -(-self.length // self.block)
        self.query = self._filled(query, 0)
        self.key = self._filled(key, self.margin)
        # One more column of ones sums the weights, too.
        self.value = self._filled(value, self.margin, 1)
        self.of_tokens(self.value)[..., -1] = 1.0

    def _filled(self, x: Tensor, margin: int, columns: int = 0) -> Tensor:
        length = self.blocks * self.block + 2 * margin
        filled = x.new_empty(len(x), length, x.size(-1) + columns)
        filled[:, :margin] = 0.0
        filled[:, margin + self.length :] = 0.0
        filled[:, margin : margin + self.length, : x.size(-1)] = x
        return filled

    def of_tokens(self, x: Tensor) -> Tensor:  # [H, any, D] -> [H, n, D]
        """Cut off what is no token."""
        return self.whole(x)[:, : self.length]

    def whole(self, x: Tensor) -> Tensor:  # [H, any, D] -> [H, blocks · block, D]
        """Cut the room at both sides off keys and values, if there is any."""
        length = self.blocks * self.block
        return x if x.size(1) == length else x[:, self.margin : self.margin + length]

    def blocked(self, x: Tensor) -> Tensor:  # [H, any, D] -> [H, blocks, block, D]
        """Return the blocks of tokens, a view."""
        return self.whole(x).view(len(x), self.blocks, self.block, x.size(-1))


@dataclass
class Reading:
    """What tokens have read so far: sums with weights e to the scores less a shift."""

    total: Tensor  # of weights times values, and of weights last, [H, blocks · block, Dv + 1]
    shift: Tensor  # [H, blocks · block, 1]

    @classmethod
    def nothing(cls, tokens: Tokens) -> Reading:
        """Return what tokens have read before they read anything."""
        size = tokens.query.shape[:2]
        shift = tokens.query.new_full((*size, 1), NOTHING)
        return cls(tokens.query.new_zeros(*size, tokens.value.size(-1)), shift)


class Gradients:
    """What comes back to some heads, and what they have passed on so far."""

    def __init__(
        self,
        tokens: Tokens,
        grad: Tensor,  # of the outputs, [H, n, Dv]
        output: Tensor,  # [H, n, Dv]
        shift: Tensor,  # [H, n]
        weight: Tensor,  # [H, n]
    ) -> None:
        fill = (0, 0, 0, tokens.blocks * tokens.block - tokens.length)
        grad = grad / weight.unsqueeze(-1)  # from now on weights are e to the scores less the shift
        self.grad = F.pad(grad, fill)
        self.delta = F.pad((grad * output).sum(-1, keepdim=True), fill)
        self.shift = F.pad(shift.unsqueeze(-1), fill, value=torch.inf)  # what is filled weighs 0
        self.query, self.key, self.value = (
            torch.zeros_like(x) for x in (tokens.query, tokens.key, tokens.value)
        )


def draw_mask(weights: Tensor, kept: Kept) -> Tensor | None:
    """Return what weights are multiplied by in dropout; backward draws the same again."""
    if kept is None:
        return None
    share, generator = kept
    return torch.empty_like(weights).bernoulli_(share, generator=generator).div_(share or 1.0)


def masked(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Return weights after dropout; these themselves where there is none."""
    return weights if mask is None else weights * mask


def read_values(weights: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Return the weighted sum of values, and of weights, which dropout leaves alone."""
    total = masked(weights, mask) @ value
    if mask is not None:
        total[..., -1:] = weights @ value[..., -1:]
    return total


def rows(x: Tensor, index: Tensor) -> Tensor:  # [H, any, D], [a, b] -> [a, b, D]
    """Return rows of all heads by number."""
    return x.flatten(0, 1).index_select(0, index.flatten()).view(*index.shape, x.size(-1))


class Rest:
    """The keys that a token does not read exactly, with the scores of its cluster."""

    def __init__(
        self,
        tokens: Tokens,
        queries: Tensor,  # of clusters, times the scale, [H, m, D]
        joined: Tensor,  # [H, n]
        best: Tensor,  # [H, m, keys]
        largest: Tensor,  # score of the other keys, [H, m]
    ) -> None:
        self.tokens, self.queries, self.largest = tokens, queries, largest
        # Blocks from a token's own to the nearest that it reads here, before and after it.
        self.before, self.after = (2, 2) if tokens.margin else (0, 1)
        (heads, clusters, _), length = queries.shape, tokens.blocks * tokens.block
        taken = torch.zeros(heads, clusters, length, dtype=torch.bool, device=queries.device)
        taken[:, :, tokens.length :] = True  # what fills the last block up
        self.taken = taken.scatter_(-1, best, True)
        of_head = torch.arange(heads, device=joined.device).unsqueeze(-1) * clusters
        index = F.pad(joined + of_head, (0, length - tokens.length))
        self.index = [part.flatten() for part in torch.split(index, tokens.block, dim=1)]
        # Weights of so many blocks of keys are made at a time.
        self.step = max(1, 2 * CACHE // (heads * clusters * tokens.block))

    def _pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield some blocks, and the weights of their keys, [H, blocks, m, block]."""
        tokens, shift = self.tokens, -self.largest.unsqueeze(-1)
        for start in range(0, tokens.blocks, self.step):
            blocks = slice(start, min(start + self.step, tokens.blocks))
            inside = slice(start * tokens.block, blocks.stop * tokens.block)
            key = tokens.whole(tokens.key)[:, inside]
            weights = torch.baddbmm(shift, self.queries, key.mT).exp_()
            weights = weights.masked_fill_(self.taken[:, :, inside], 0.0)
            yield blocks, weights.unflatten(-1, (-1, tokens.block)).transpose(1, 2)  # type: ignore[no-untyped-call]

    def _sweep(self, forward: bool) -> list[tuple[int, int]]:
        """Return each block of tokens with the next block of keys that comes into its sums."""
        blocks = self.tokens.blocks
        if forward:
            return [(block, block - self.before) for block in range(self.before, blocks)]
        return [(block, block + self.after) for block in reversed(range(blocks - self.after))]

    def read(self, kept: Kept) -> Reading:
        """Return what the tokens read there, by running sums over blocks from both ends.

        Nothing is subtracted, so that nothing cancels.
        """
        reading = Reading.nothing(self.tokens)
        values, outputs = self.tokens.blocked(self.tokens.value), self.tokens.blocked(reading.total)
        sums = [
            part
            for blocks, weights in self._pieces()
            for part in read_values(weights, values[:, blocks], draw_mask(weights, kept)).unbind(1)
        ]  # [blocks][H, m, Dv + 1]
        for forward in (True, False):
            running = torch.zeros_like(sums[0])
            flat = running.flatten(0, 1)
            for block, far in self._sweep(forward):
                running += sums[far]
                output = outputs[:, block]
                output += flat.index_select(0, self.index[block]).view_as(output)
        reading.shift = self._shift().masked_fill_(reading.total[..., -1:] == 0, NOTHING)
        return reading

    def _shift(self) -> Tensor:  # of each token's cluster, [H, blocks · block, 1]
        flat = self.largest.flatten()
        parts = [flat[index].view(len(self.largest), -1, 1) for index in self.index]
        return torch.cat(parts, dim=1)

    def differentiate(self, back: Gradients, kept: Kept) -> Tensor:  # [H, m, D]
        """Add the gradients of keys and values; return those of the clusters' queries, scaled."""
        tokens, (heads, clusters, _) = self.tokens, self.queries.shape
        # A larger factor belongs to weights that are 0 in this precision; sums must stay finite.
        limit = 70.0 if back.shift.dtype == torch.float32 else 600.0
        factor = (self._shift() - back.shift).clamp_(max=limit).exp_()
        unit = back.grad.abs().amax().clamp(min=torch.finfo(factor.dtype).tiny)
        x = torch.cat([back.grad, -back.delta], -1).mul_(factor.div_(unit))
        passed = [part.flatten(0, 1) for part in torch.split(x, tokens.block, dim=1)]
        # What comes from the tokens that read a block of keys, by cluster, from both sides of it.
        sums = x.new_zeros(tokens.blocks, heads * clusters, x.size(-1))
        for forward in (True, False):
            running = torch.zeros_like(sums[0])
            for block, far in reversed(self._sweep(forward)):
                running.index_add_(0, self.index[block], passed[block])
                sums[far] += running
        grads = sums.view(-1, heads, clusters, x.size(-1)).transpose(0, 1)
        keys, values, by_keys, by_values = (
            tokens.blocked(part) for part in (tokens.key, tokens.value, back.key, back.value)
        )
        by_query = torch.zeros_like(self.queries)
        for blocks, weights in self._pieces():
            grad, mask = grads[:, blocks], draw_mask(weights, kept)
            by_values[:, blocks] += masked(weights, mask).mT @ grad * unit
            by_score = grad @ values[:, blocks].mT
            if mask is not None:  # it is not for the last column
                by_score = by_score.sub_(grad[..., -1:]).mul_(mask).add_(grad[..., -1:])
            by_score = by_score.mul_(weights)
            by_query += (by_score @ keys[:, blocks]).sum(1)
            by_keys[:, blocks] += by_score.mT @ self.queries.unsqueeze(1) * unit
        return by_query.mul_(unit)


class Window:
    """The keys in a token's own block, the one before and the one after."""

    def __init__(self, tokens: Tokens, scale: float) -> None:
        self.tokens, self.scale, self.block = tokens, scale, tokens.block
        # Scores of so many blocks stay in the cache of a core.
        self.step = max(1, CACHE // (3 * self.block * self.block))

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

    def read(self, reading: Reading, kept: Kept) -> None:
        """Add what the tokens read there."""
        for head, blocks, inside in self._pieces():
            query, total, shift = (
                x[head, inside].view(-1, self.block, x.size(-1))
                for x in (self.tokens.query, reading.total, reading.shift)
            )
            scores = self._scores(head, blocks, query)
            largest = torch.maximum(scores.amax(-1, keepdim=True), shift)
            total.mul_(shift.sub_(largest).exp_())
            weights = scores.sub_(largest).exp_()
            value = self._around(self.tokens.value[head], blocks)
            total += read_values(weights, value, draw_mask(weights, kept))
            shift.copy_(largest)

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
        for third, part in enumerate(torch.split(around, self.block, dim=1)):
            start = (blocks.start + third) * self.block
            inside = total[start : start + len(around) * self.block]
            inside += part.reshape(-1, part.size(-1))


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
        pieces = (torch.split(x, max(1, CACHE // width)) for x in (token, best, empty))
        self.pieces = list(zip(*pieces, strict=True))

    def _scores(self, token: Tensor, best: Tensor, query: Tensor, key: Tensor) -> Tensor:
        scores = (query * self.scale) @ key.mT  # [tiles, TILE, keys]
        if self.tokens.margin:
            block, rows = self.tokens.block, (self.tokens.query.size(1), self.tokens.key.size(1))
            own, others = (
                (x % row // block).int() for x, row in zip((token, best), rows, strict=True)
            )
            # Blocks of keys are counted from the margin, which is one.
            near = (own.unsqueeze(-1) - others.unsqueeze(1) + 1).abs_() <= 1
            scores = scores.masked_fill_(near, -torch.inf)
        return scores

    def read(self, reading: Reading, kept: Kept) -> None:
        """Add what the tokens read there."""
        tokens = self.tokens
        for token, best, empty in self.pieces:
            query, key, value = (
                rows(tokens.query, token),
                rows(tokens.key, best),
                rows(tokens.value, best),
            )
            total, shift = rows(reading.total, token), rows(reading.shift, token)
            scores = self._scores(token, best, query, key)
            largest = torch.maximum(scores.amax(-1, keepdim=True), shift)
            weights = scores.sub_(largest).exp_()
            total.mul_(shift.sub_(largest).exp_())
            mask = draw_mask(weights, kept)
            if mask is not None:  # what is repeated must not be another number
                mask = torch.where(empty.unsqueeze(-1), mask[:, :1], mask)
            total += read_values(weights, value, mask)
            for x, part in ((reading.total, total), (reading.shift, largest)):
                x.flatten(0, 1).index_copy_(0, token.flatten(), part.flatten(0, 1))

    def differentiate(self, back: Gradients, kept: Kept) -> None:
        """Add the gradients by these keys."""
        tokens = self.tokens
        for token, best, empty in self.pieces:
            query, key, value = (
                rows(tokens.query, token),
                rows(tokens.key, best),
                rows(tokens.value, best),
            )
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
