"""The three parts of attention by clusters, each with its gradients: around, best keys, the rest.

They read some heads of one sequence, in float32 or float64. The weights of a part are e to its
scores less the log-sum-exp of all scores, so that the gradients of the parts just add up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.clusters import cluster_sizes

TILE = 32  # tokens of one cluster that read its best keys together
CACHE = 2**18  # numbers that a core works on at a time: 1 MiB in float32

Gradients: TypeAlias = tuple[Tensor, Tensor, Tensor]  # of queries, keys and values
Kept: TypeAlias = "tuple[float, torch.Generator] | None"  # share that dropout keeps


class Read(NamedTuple):
    """What tokens read of some of their keys, with weights e to their scores less a shift."""

    output: Tensor  # sum of weighted values, [H, n, Dv]
    weight: Tensor  # sum of weights, [H, n]
    shift: Tensor  # [H, n]


class Back(NamedTuple):
    """What comes back to a part: nothing of it but the merged output's."""

    grad: Tensor  # of that output, [H, n, Dv]
    delta: Tensor  # its product with the output, [H, n]
    lse: Tensor  # of all scores, [H, n]


def merge(parts: list[Read]) -> tuple[Tensor, Tensor]:  # [H, n, Dv], [H, n]
    """Return what tokens read of all their keys, and the log-sum-exp of their scores."""
    shifts = [part.shift.masked_fill(part.weight == 0, -torch.inf) for part in parts]
    shift = torch.stack(shifts).amax(0)
    factors = [(own - shift).exp_() for own in shifts]
    weights = [f * part.weight for f, part in zip(factors, parts, strict=True)]
    weight = torch.stack(weights).sum(0)
    output = torch.zeros_like(parts[0].output)
    for factor, part in zip(factors, parts, strict=True):
        output.addcmul_(part.output, (factor / weight).unsqueeze(-1))
    return output, weight.log() + shift


def draw_mask(weights: Tensor, kept: Kept) -> Tensor | None:
    """Return what weights are multiplied by in dropout; backward draws the same again."""
    if kept is None:
        return None
    share, generator = kept
    return torch.empty_like(weights).bernoulli_(share, generator=generator).div_(share)


def masked(weights: Tensor, mask: Tensor | None) -> Tensor:
    """Return weights after dropout; these themselves where there is none."""
    return weights if mask is None else weights * mask


class Window:
    """The keys in a token's own block, the one before and the one after."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, block: int, scale: float) -> None:
        self.length, self.block, self.scale = query.size(1), block, scale
        self.blocks = -(-self.length // block)
        self.query = self._blocks(query)
        self.key, self.value = self._padded(key), self._padded(value)
        # Scores of so many blocks stay in the cache of a core.
        self.step = max(1, CACHE // (3 * block * block))

    def _blocks(self, x: Tensor) -> Tensor:  # [H, blocks, block, D]
        filled = F.pad(x, (0, 0, 0, -self.length % self.block))
        return filled.view(len(x), -1, self.block, x.size(-1))

    def _padded(self, x: Tensor) -> Tensor:  # [H, (blocks + 2) · block, D]
        return F.pad(x, (0, 0, self.block, (self.blocks + 1) * self.block - self.length))

    def _around(self, padded: Tensor, blocks: slice) -> Tensor:  # [blocks, 3 · block, D]
        step = self.block * padded.size(-1)  # each overlaps the next
        size = blocks.stop - blocks.start, 3 * self.block, padded.size(-1)
        start = padded.storage_offset() + blocks.start * step
        return padded.as_strided(size, (step, padded.size(-1), 1), start)

    def _pieces(self) -> Iterator[tuple[int, slice]]:
        for head in range(len(self.query)):
            for start in range(0, self.blocks, self.step):
                yield head, slice(start, min(start + self.step, self.blocks))

    def _scores(self, head: int, blocks: slice) -> Tensor:  # [blocks, block, 3 · block]
        query = self.query[head, blocks] * self.scale
        scores = query @ self._around(self.key[head], blocks).mT
        first = self.block if blocks.start == 0 else 0  # nothing is before the first block
        scores[:1, :, :first] = -torch.inf
        for back in (1, 2):  # what comes after the last token
            number = self.blocks - back - blocks.start
            if number < len(scores):
                end = self.length - (self.blocks - back - 1) * self.block
                scores[number : number + 1, :, end:] = -torch.inf
        return scores

    def read(self, kept: Kept) -> Read:
        """Return what the tokens read there."""
        output = self.query.new_empty(*self.query.shape[:3], self.value.size(-1))
        weight, shift = (self.query.new_empty(*self.query.shape[:3], 1) for _ in range(2))
        for head, blocks in self._pieces():
            at = head, blocks
            scores = self._scores(*at)
            torch.amax(scores, -1, keepdim=True, out=shift[at])
            weights = scores.sub_(shift[at]).exp_()
            torch.sum(weights, -1, keepdim=True, out=weight[at])
            weights = masked(weights, draw_mask(weights, kept))
            torch.bmm(weights, self._around(self.value[head], blocks), out=output[at])
        output, weight, shift = (
            x.flatten(1, 2)[:, : self.length] for x in (output, weight, shift)
        )
        return Read(output, weight.squeeze(-1), shift.squeeze(-1))

    def gradients(self, back: Back, kept: Kept) -> Gradients:
        """Return the gradients by these keys."""
        grad = self._blocks(back.grad)
        delta, lse = (self._blocks(x.unsqueeze(-1)) for x in (back.delta, back.lse))
        by_query = torch.empty_like(self.query)
        by_key, by_value = torch.zeros_like(self.key), torch.zeros_like(self.value)
        for head, blocks in self._pieces():
            at = head, blocks
            weights = self._scores(*at).sub_(lse[at]).exp_()
            mask = draw_mask(weights, kept)
            by_weight = grad[at] @ self._around(self.value[head], blocks).mT
            self._add(by_value[head], blocks, masked(weights, mask).mT @ grad[at])
            by_score = masked(by_weight, mask).sub_(delta[at]).mul_(weights).mul_(self.scale)
            torch.bmm(by_score, self._around(self.key[head], blocks), out=by_query[at])
            self._add(by_key[head], blocks, by_score.mT @ self.query[at])
        inside = slice(self.block, self.block + self.length)
        return by_query.flatten(1, 2)[:, : self.length], by_key[:, inside], by_value[:, inside]

    def _add(self, padded: Tensor, blocks: slice, around: Tensor) -> None:
        number, width = len(around), padded.size(-1)
        for third, part in enumerate(around.split(self.block, dim=1)):
            start = (blocks.start + third) * self.block
            padded[start : start + number * self.block] += part.reshape(-1, width)


class BestKeys:
    """The keys that a token's cluster scores highest, but those in the blocks around it."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        joined: Tensor,  # [H, n]
        best: Tensor,  # [H, m, keys]
        block: int,  # 0 for no window
        scale: float,
    ) -> None:
        (heads, length), clusters = joined.shape, best.size(1)
        self.shape, self.scale = (heads, length), scale
        # Tokens sorted by cluster, each cluster in tiles of its own.
        sizes = cluster_sizes(joined, clusters)
        tiles = (sizes + TILE - 1) // TILE
        order = joined.sort(stable=True).indices
        index = joined.gather(1, order)
        first = (tiles.flatten().cumsum(0) - tiles.flatten()).view_as(tiles) * TILE
        start = first - (sizes.cumsum(1) - sizes)
        slot = start.gather(1, index) + torch.arange(length, device=joined.device)
        self.slot = torch.empty_like(slot).scatter_(1, order, slot)  # of each token
        number = torch.arange(heads * clusters, device=joined.device)
        self.cluster = number.repeat_interleave(tiles.flatten())
        of_head = torch.arange(heads, device=joined.device).unsqueeze(-1) * length
        # A slot without a token reads as the first one would, and nobody takes it.
        self.token = order.new_zeros(len(self.cluster) * TILE)
        self.token[slot.flatten()] = (order + of_head).flatten()
        self.index = (best + of_head.unsqueeze(-1)).flatten(0, 1)  # [H · m, keys]
        self.query = self._tiled(query)
        self.key, self.value = self._of_clusters(key), self._of_clusters(value)
        around = (self.token % length).view(-1, TILE, 1) // max(block, 1)
        around = around - best.flatten(0, 1)[self.cluster].unsqueeze(1) // max(block, 1)
        self.near = around.abs() <= 1 if block else None

    def _tiled(self, x: Tensor) -> Tensor:  # [tiles, TILE, D]
        return x.flatten(0, 1)[self.token].view(-1, TILE, x.size(-1))

    def _of_clusters(self, x: Tensor) -> Tensor:  # [tiles, keys, D]
        return x.flatten(0, 1)[self.index][self.cluster]

    def _of_tokens(self, x: Tensor) -> Tensor:  # [H, n, ...]
        return x.flatten(0, 1)[self.slot]

    def _scores(self) -> Tensor:  # [tiles, TILE, keys]
        scores = (self.query * self.scale) @ self.key.mT
        return scores if self.near is None else scores.masked_fill_(self.near, -torch.inf)

    def read(self, kept: Kept) -> Read:
        """Return what the tokens read there."""
        scores = self._scores()
        shift = scores.amax(-1, keepdim=True).clamp_(min=-1e30)  # some read no key here
        weights = scores.sub_(shift).exp_()
        weight = weights.sum(-1, keepdim=True)
        output = masked(weights, draw_mask(weights, kept)) @ self.value
        output, weight, shift = (self._of_tokens(x) for x in (output, weight, shift))
        return Read(output, weight.squeeze(-1), shift.squeeze(-1))

    def gradients(self, back: Back, kept: Kept) -> Gradients:
        """Return the gradients by these keys."""
        empty = torch.ones(len(self.token), dtype=torch.bool, device=self.token.device)
        empty[self.slot.flatten()] = False
        lse = self._tiled(back.lse.unsqueeze(-1))
        lse = lse.masked_fill_(empty.view_as(lse), torch.inf)
        grad, delta = self._tiled(back.grad), self._tiled(back.delta.unsqueeze(-1))
        weights = self._scores().sub_(lse).exp_()
        mask = draw_mask(weights, kept)
        by_value = masked(weights, mask).mT @ grad
        by_weight = masked(grad @ self.value.mT, mask)
        by_score = by_weight.sub_(delta).mul_(weights).mul_(self.scale)
        query = self._of_tokens(by_score @ self.key)
        return query, self._to_keys(by_score.mT @ self.query), self._to_keys(by_value)

    def _to_keys(self, x: Tensor) -> Tensor:  # [tiles, keys, D] -> [H, n, D]
        total = x.new_zeros(*self.shape, x.size(-1))
        index = self.index[self.cluster].flatten()
        total.flatten(0, 1).index_add_(0, index, x.flatten(0, 1))
        return total


class Rest:
    """All other keys, with the scores of a token's cluster."""

    def __init__(
        self,
        queries: Tensor,  # of clusters, times the scale, [H, m, D]
        key: Tensor,  # [H, n, D]
        value: Tensor,  # [H, n, Dv]
        joined: Tensor,  # [H, n]
        best: Tensor,  # [H, m, keys]
        largest: Tensor,  # score of the other keys, [H, m]
        block: int,  # 0 for no window
    ) -> None:
        (heads, clusters, _), self.length = queries.shape, key.size(1)
        self.block = block or self.length
        # Blocks from a token's own to the nearest that it reads here, before and after it.
        self.before, self.after = (2, 2) if block else (0, 1)
        self.queries, self.largest = queries, largest
        fill = -self.length % self.block
        self.blocks = (self.length + fill) // self.block
        self.key = self._of_blocks(key)
        # One more column of ones sums the weights, too.
        self.value = self._of_blocks(F.pad(value, (0, 1), value=1.0))
        self.taken = torch.zeros(
            heads, clusters, self.length, dtype=torch.bool, device=key.device
        ).scatter_(-1, best, True)
        self.taken = F.pad(self.taken, (0, fill), value=True)
        of_head = torch.arange(heads, device=joined.device).view(-1, 1) * clusters
        index = F.pad(joined, (0, fill)) + of_head
        self.index = index.view(heads, self.blocks, self.block).transpose(0, 1).flatten(1)

    def _of_blocks(self, x: Tensor) -> Tensor:  # [H, n, D] -> [blocks, H, block, D]
        x = F.pad(x, (0, 0, 0, self.blocks * self.block - self.length))
        return x.view(len(x), self.blocks, self.block, x.size(-1)).transpose(0, 1).contiguous()

    def _of_tokens(self, x: Tensor) -> Tensor:  # [blocks, H · block, D] -> [H, n, D]
        x = x.view(self.blocks, -1, self.block, x.size(-1)).transpose(0, 1)
        return x.flatten(1, 2)[:, : self.length]

    def _weights(self, block: int) -> Tensor:  # [H, m, block]
        shift = self.largest.neg().unsqueeze(-1)
        weights = torch.baddbmm(shift, self.queries, self.key[block].mT).exp_()
        inside = slice(block * self.block, (block + 1) * self.block)
        return weights.masked_fill_(self.taken[:, :, inside], 0.0)

    def read(self, kept: Kept) -> Read:
        """Return what the tokens read there, by running sums over blocks from both ends.

        Nothing is subtracted, so that nothing cancels.
        """
        (heads, clusters, _), width = self.queries.shape, self.value.size(-1)
        sums = self.value.new_empty(self.blocks, heads, clusters, width)
        for block in range(self.blocks):
            weights = self._weights(block)
            torch.bmm(weights, self.value[block], out=sums[block])
            mask = draw_mask(weights, kept)
            if mask is not None:
                dropped = (weights * mask) @ self.value[block]
                sums[block, ..., :-1] = dropped[..., :-1]
        output = self.value.new_zeros(self.blocks, heads * self.block, width)
        for block, far in self._far(first_to_last=True):
            running = sums[far] if block == self.before else running + sums[far]
            output[block] = running.flatten(0, 1).index_select(0, self.index[block])
        for block, far in self._far(first_to_last=False):
            running = sums[far] if far == self.blocks - 1 else running + sums[far]
            output[block] += running.flatten(0, 1).index_select(0, self.index[block])
        output = self._of_tokens(output)
        return Read(output[..., :-1], output[..., -1], self._shift())

    def _far(self, first_to_last: bool) -> list[tuple[int, int]]:
        """Return pairs of a token's block and the next one that comes into its sums."""
        if first_to_last:
            return [(block, block - self.before) for block in range(self.before, self.blocks)]
        return [(block, block + self.after) for block in reversed(range(self.blocks - self.after))]

    def _shift(self) -> Tensor:  # [H, n]
        shift = self.largest.flatten()[self.index].unsqueeze(-1)
        return self._of_tokens(shift).squeeze(-1)

    def gradients(self, back: Back, kept: Kept) -> Gradients:
        """Return the gradients of the queries of clusters, times the scale, of keys and values."""
        # A larger factor belongs to weights that are 0 in this precision.
        limit = 80.0 if back.lse.dtype == torch.float32 else 700.0
        factor = (self._shift() - back.lse).clamp(max=limit).exp().unsqueeze(-1)
        x = torch.cat([back.grad, -back.delta.unsqueeze(-1)], -1).mul_(factor)
        x = self._of_blocks(x).flatten(1, 2)  # [blocks, H · block, Dv + 1]
        (heads, clusters, _), width = self.queries.shape, x.size(-1)
        # What comes from the tokens that read a block, by cluster: first from those after it.
        sums = x.new_zeros(self.blocks, heads * clusters, width)
        for block, far in reversed(self._far(first_to_last=True)):
            if far + 1 < self.blocks - self.before:
                sums[far] = sums[far + 1]
            sums[far].index_add_(0, self.index[block], x[block])
        by_query = torch.zeros_like(self.queries)
        by_key, by_value = torch.empty_like(self.key), torch.empty_like(self.value[..., :-1])
        running = x.new_zeros(heads * clusters, width)
        for far in range(self.blocks):
            if far >= self.after:
                before = far - self.after
                running.index_add_(0, self.index[before], x[before])
            grad = sums[far].add_(running).view(heads, clusters, width)
            weights = self._weights(far)
            mask = draw_mask(weights, kept)
            by_value[far] = masked(weights, mask).mT @ grad[..., :-1]
            by_score = grad @ self.value[far].mT
            if mask is not None:
                by_score = by_score.sub_(grad[..., -1:]).mul_(mask).add_(grad[..., -1:])
            by_score = by_score.mul_(weights)
            by_query.baddbmm_(by_score, self.key[far])
            torch.bmm(by_score.mT, self.queries, out=by_key[far])
        by_key, by_value = (self._of_tokens(x.flatten(1, 2)) for x in (by_key, by_value))
        return by_query, by_key, by_value
