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

Gradients: TypeAlias = tuple[Tensor, Tensor, Tensor]  # of queries, keys and values
Kept: TypeAlias = "tuple[float, torch.Generator] | None"  # share that dropout keeps


class Read(NamedTuple):
    """What tokens read of some of their keys."""

    output: Tensor  # [H, n, Dv]
    lse: Tensor  # log-sum-exp of the scores, [H, n]; -inf where there is no key


class Back(NamedTuple):
    """What comes back to a part: nothing of it but the merged output's."""

    grad: Tensor  # of that output, [H, n, Dv]
    delta: Tensor  # its product with the output, [H, n]
    lse: Tensor  # of all scores, [H, n]


def merge(parts: list[Read]) -> Read:
    """Return what tokens read of all their keys."""
    lse = torch.stack([part.lse for part in parts]).logsumexp(0)
    output = torch.zeros_like(parts[0].output)
    for part in parts:
        output.addcmul_(part.output, (part.lse - lse).exp_().unsqueeze(-1))
    return Read(output, lse)


def draw_mask(weights: Tensor, kept: Kept) -> Tensor | None:
    """Return what weights are multiplied by in dropout; backward draws the same again."""
    if kept is None:
        return None
    share, generator = kept
    return torch.empty_like(weights).bernoulli_(share, generator=generator).div_(share or 1.0)


class Window:
    """The keys in a token's own block, the one before and the one after."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, block: int, scale: float) -> None:
        self.length, self.block, self.scale = query.size(1), block, scale
        self.blocks = -(-self.length // block)
        self.query = self._blocks(query)
        self.key, self.value = self._around(key), self._around(value)

    def _blocks(self, x: Tensor) -> Tensor:  # [H, blocks, block, D]
        filled = F.pad(x, (0, 0, 0, -self.length % self.block))
        return filled.view(len(x), -1, self.block, x.size(-1))

    def _around(self, x: Tensor) -> Tensor:  # [H, blocks, 3 · block, D]
        width, end = x.size(-1), (self.blocks + 1) * self.block - self.length
        padded = F.pad(x, (0, 0, self.block, end))
        size = len(x), self.blocks, 3 * self.block, width  # each overlaps the next
        return padded.as_strided(size, (padded.stride(0), self.block * width, width, 1))

    def _scores(self, head: int) -> Tensor:  # [blocks, block, 3 · block]
        scores = (self.query[head] * self.scale) @ self.key[head].mT
        scores[0, :, : self.block] = -torch.inf
        scores[-1, :, 2 * self.block :] = -torch.inf
        fill = -self.length % self.block
        if fill:
            scores[-1, :, 2 * self.block - fill : 2 * self.block] = -torch.inf
            scores[-2:-1, :, 3 * self.block - fill :] = -torch.inf
        return scores

    def read(self, kept: Kept) -> Read:
        """Return what the tokens read there; head by head, for then nothing is copied."""
        output, lse = self.query.new_empty(*self.query.shape[:3], self.value.size(-1)), []
        for head in range(len(self.query)):
            scores = self._scores(head)
            lse.append(scores.logsumexp(-1))
            weights = scores.sub_(lse[-1].unsqueeze(-1)).exp_()
            mask = draw_mask(weights, kept)
            weights = weights if mask is None else weights.mul_(mask)
            torch.bmm(weights, self.value[head], out=output[head])
        return Read(*(x.flatten(1, 2)[:, : self.length] for x in (output, torch.stack(lse))))

    def gradients(self, back: Back, kept: Kept) -> Gradients:
        """Return the gradients by these keys."""
        grad, delta, lse = self._blocks(back.grad), *map(self._rows, back[1:])
        found = []
        for head in range(len(self.query)):
            weights = self._scores(head).sub_(lse[head]).exp_()
            mask = draw_mask(weights, kept)
            by_weight = grad[head] @ self.value[head].mT
            by_value = (weights if mask is None else weights * mask).mT @ grad[head]
            by_weight = by_weight if mask is None else by_weight.mul_(mask)
            by_score = by_weight.sub_(delta[head]).mul_(weights).mul_(self.scale)
            by_query = by_score @ self.key[head]
            by_key = by_score.mT @ self.query[head]
            found.append((by_query.flatten(0, 1), self._fold(by_key), self._fold(by_value)))
        query, key, value = (torch.stack(x)[:, : self.length] for x in zip(*found, strict=True))
        return query, key, value

    def _rows(self, x: Tensor) -> Tensor:  # [H, blocks, block, 1]
        return self._blocks(x.unsqueeze(-1))

    def _fold(self, around: Tensor) -> Tensor:  # [n, D]
        total = around[:, self.block : 2 * self.block].clone()
        total[:-1] += around[1:, : self.block]
        total[1:] += around[:-1, 2 * self.block :]
        return total.flatten(0, 1)


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
        lse = scores.logsumexp(-1)
        weights = scores.sub_(lse.clamp(min=-1e30).unsqueeze(-1)).exp_()
        mask = draw_mask(weights, kept)
        weights = weights if mask is None else weights.mul_(mask)
        return Read(self._of_tokens(weights @ self.value), self._of_tokens(lse))

    def gradients(self, back: Back, kept: Kept) -> Gradients:
        """Return the gradients by these keys."""
        empty = torch.ones(len(self.token), dtype=torch.bool, device=self.token.device)
        empty[self.slot.flatten()] = False
        lse = self._tiled(back.lse.unsqueeze(-1))
        lse = lse.masked_fill_(empty.view_as(lse), torch.inf)
        grad, delta = self._tiled(back.grad), self._tiled(back.delta.unsqueeze(-1))
        weights = self._scores().sub_(lse).exp_()
        mask = draw_mask(weights, kept)
        by_weight = grad @ self.value.mT
        by_value = (weights if mask is None else weights * mask).mT @ grad
        by_weight = by_weight if mask is None else by_weight.mul_(mask)
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
        rows: Tensor,  # scores of clusters, overwritten, [H, m, n]
        value: Tensor,  # [H, n, Dv]
        joined: Tensor,  # [H, n]
        best: Tensor,  # [H, m, keys]
        block: int,  # 0 for no window
    ) -> None:
        heads, clusters, self.length = rows.shape
        self.block = block or self.length
        self.reach = 2 if block else 0  # blocks from a token's own to the next one that is read
        fill = -self.length % self.block
        rows.scatter_(-1, best, -torch.inf)
        self.largest = rows.amax(-1, keepdim=True)
        weights = F.pad(rows.sub_(self.largest).exp_(), (0, fill))
        self.weights = weights.view(heads, clusters, -1, self.block)  # [H, m, blocks, block]
        self.value = F.pad(value, (0, 0, 0, fill)).view(heads, -1, self.block, value.size(-1))
        self.blocks = self.value.size(1)
        of_head = torch.arange(heads, device=joined.device).view(-1, 1) * clusters
        joined = F.pad(joined, (0, fill)) + of_head
        self.index = joined.view(heads, self.blocks, self.block).transpose(0, 1).contiguous()

    def _far(self, forward: bool) -> Iterator[tuple[int, int]]:
        """Yield pairs of a token's block and one that comes into its sums, the nearest last."""
        later = max(self.reach, 1)
        if forward:
            yield from ((block, block - self.reach) for block in range(self.reach, self.blocks))
        else:
            yield from ((block, block + later) for block in reversed(range(self.blocks - later)))

    def _sums(self) -> Tensor:  # [H, n]
        """Return the weight of all keys for each token; nothing is subtracted, nothing cancels."""
        later, of_blocks = max(self.reach, 1), self.weights.sum(-1)
        before = F.pad(of_blocks.cumsum(-1), (self.reach, 0))[..., : self.blocks]
        after = F.pad(of_blocks.flip(-1).cumsum(-1).flip(-1), (0, later))[..., later:]
        sums = (before + after).flatten(0, 1).mT.gather(1, self.index.flatten(1))
        return self._of_tokens(sums.unsqueeze(-1)).squeeze(-1)

    def _of_tokens(self, x: Tensor) -> Tensor:  # [blocks, H · block, D] -> [H, n, D]
        x = x.view(self.blocks, -1, self.block, x.size(-1)).transpose(0, 1)
        return x.flatten(1, 2)[:, : self.length]

    def _of_blocks(self, x: Tensor) -> Tensor:  # [H, n, D] -> [blocks, H · block, D]
        x = F.pad(x, (0, 0, 0, -self.length % self.block))
        return x.view(len(x), -1, self.block, x.size(-1)).transpose(0, 1).flatten(1, 2)

    def _largest(self) -> Tensor:  # of each token's cluster, [H, n]
        largest = self.largest.flatten()[self.index].flatten(1).unsqueeze(-1)
        return self._of_tokens(largest).squeeze(-1)

    def read(self, kept: Kept) -> Read:
        """Return what the tokens read there, by running sums over blocks from both ends."""
        (heads, clusters), width = self.weights.shape[:2], self.value.size(-1)
        mask = draw_mask(self.weights, kept)
        weights = self.weights if mask is None else self.weights * mask
        output = self.value.new_zeros(self.blocks, heads * self.block, width)
        for forward in (True, False):
            running = self.value.new_zeros(heads, clusters, width)
            for block, far in self._far(forward):
                running.baddbmm_(weights[:, :, far], self.value[:, far])
                index = self.index[block].flatten()
                output[block] += running.flatten(0, 1).index_select(0, index)
        sums = self._sums()
        tiny = torch.finfo(sums.dtype).tiny
        output = self._of_tokens(output) / sums.clamp(min=tiny).unsqueeze(-1)
        return Read(output, sums.log() + self._largest())

    def gradients(self, back: Back, kept: Kept) -> tuple[Tensor, Tensor]:
        """Return the gradients of the scores of clusters, and of values."""
        (heads, clusters), width = self.weights.shape[:2], self.value.size(-1)
        # What is larger belongs to weights that are 0 in this precision.
        limit = 80.0 if back.lse.dtype == torch.float32 else 700.0
        factor = (self._largest() - back.lse).clamp(max=limit).exp().unsqueeze(-1)
        x = self._of_blocks(torch.cat([back.grad, back.delta.unsqueeze(-1)], -1) * factor)
        sums = x.new_zeros(self.blocks, heads, clusters, width + 1)
        for forward in (True, False):
            running = x.new_zeros(heads * clusters, width + 1)
            for block, far in reversed(list(self._far(forward))):
                running.index_add_(0, self.index[block].flatten(), x[block])
                sums[far] += running.view_as(sums[far])
        sums = sums.transpose(0, 1)  # [H, blocks, m, Dv + 1]
        weights = self.weights.transpose(1, 2)  # [H, blocks, m, block]
        mask = draw_mask(self.weights, kept)
        by_weight = sums[..., :width] @ self.value.mT
        if mask is not None:
            mask = mask.transpose(1, 2)
            by_weight = by_weight * mask
        by_value = (weights if mask is None else weights * mask).mT @ sums[..., :width]
        by_row = (by_weight - sums[..., width:]) * weights
        by_row = by_row.transpose(1, 2).flatten(2)[..., : self.length]
        return by_row, by_value.flatten(1, 2)[:, : self.length]
