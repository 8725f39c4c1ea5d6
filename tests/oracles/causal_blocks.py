"""Clusters in a decoder, block by block: tokens read what the blocks before them left behind.

A whole sequence, parts of it and single tokens are one function. It is not fast, but linear: what a
fast form must keep, and in which order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

NOTHING = -1e30  # where nothing was read; infinity would give NaN


def rows(x: Tensor, index: Tensor) -> Tensor:  # [H, any, D], [a, b] -> [a, b, D]
    """Return rows of all heads by number."""
    return x.flatten(0, 1)[index]


class Moments(NamedTuple):
    """Number and means of tokens, and the spread of their keys."""

    count: int
    query: Tensor  # [H, 1, D]
    key: Tensor  # [H, 1, D]
    spread: Tensor  # sum of products of centred keys, [H, D, D]

    @classmethod
    def of(cls, query: Tensor, key: Tensor) -> Moments:  # [H, n, D] each
        """Return those of some tokens, which have no gradient."""
        query, key = query.detach(), key.detach()
        means = [x.mean(1, keepdim=True) for x in (query, key)]
        centred = key - means[1]
        return cls(key.size(1), *means, centred.mT @ centred)

    def __or__(self, other: Moments) -> Moments:
        """Return those of all tokens of both (Chan, Golub and LeVeque, 1979)."""
        count = self.count + other.count
        share, apart = other.count / count, other.key - self.key
        spread = self.spread + other.spread + apart.mT @ apart * (self.count * share)
        query = self.query + (other.query - self.query) * share
        return Moments(count, query, self.key + apart * share, spread)


class Landmarks(NamedTuple):
    """Tokens that stand for clusters, and what each read of the blocks that are far."""

    query: Tensor  # [H, m, D]
    best: Tensor  # positions of the keys that it scores highest, rising, [H, m, ≤ keys]
    score: Tensor  # of these, [H, m, ≤ keys]
    shift: Tensor  # [H, m, 1]
    total: Tensor  # of the other keys: weights e to the scores less the shift, times values
    weight: Tensor  # the sum of these weights, [H, m, 1]

    @classmethod
    def new(cls, query: Tensor, value: Tensor) -> Landmarks:
        """Return landmarks that read nothing so far."""
        nothing = query.detach().new_full((*query.shape[:2], 1), NOTHING)
        total = value.new_zeros(*query.shape[:2], value.size(-1))
        none = nothing[..., :0]
        return cls(query, none.long(), none, nothing, total, torch.zeros_like(nothing))

    def read(self, key: Tensor, value: Tensor, start: int, end: int, keys: int) -> Landmarks:
        """Return them after all keys of some positions; nothing is subtracted, nothing cancels."""
        scores = self.query @ key[:, start:end].mT  # [H, m, end - start]
        known, number = self.best.size(-1), min(keys, end)
        every = torch.cat([self.score, scores.detach()], dim=-1)
        new = torch.arange(start, end, device=key.device).expand_as(scores)
        position = torch.cat([self.best, new], dim=-1)  # it rises
        chosen = _highest(every, number)
        left = every.masked_fill(chosen, -torch.inf)
        shift = torch.maximum(self.shift, left.amax(-1, keepdim=True))
        factor = (self.shift - shift).exp_()
        weights = (scores.masked_fill(chosen[..., known:], -torch.inf) - shift).exp()
        total = self.total * factor + weights @ value[:, start:end]
        weight = self.weight * factor + weights.sum(-1, keepdim=True)
        head, landmark, place = (~chosen[..., :known]).nonzero().unbind(-1)
        if len(head):  # keys that are among the highest no more
            own = self.best[head, landmark, place]
            score = (self.query[head, landmark] * key[head, own]).sum(-1, keepdim=True)
            weights = (score - shift[head, landmark]).exp()
            index = head, landmark
            total = total.index_put(index, weights * value[head, own], accumulate=True)
            weight = weight.index_put(index, weights, accumulate=True)
        size = *chosen.shape[:2], number
        best, score = position[chosen].view(size), every[chosen].view(size)
        return Landmarks(self.query, best, score, shift, total, weight)

    def __or__(self, other: Landmarks) -> Landmarks:
        """Return both, in order."""
        return Landmarks(*(torch.cat(pair, dim=1) for pair in zip(self, other, strict=True)))


class CausalHeads:
    """Some heads of one sequence, as far as they have read, in float32 or float64.

    Beside keys and values they keep m · (2 D + 2 + 2 · keys) numbers for m = 2√n landmarks.
    """

    def __init__(self, keys: int, block: int, scale: float) -> None:
        self.keys, self.block, self.scale, self.length = keys, block, scale, 0
        self.queries = list[Tensor]()  # of the block that is not complete
        self.far = 0  # tokens in blocks that are complete and not the last
        self.moments: Moments | None = None  # of complete blocks
        self.mean: Tensor | None = None  # of the keys that are far, [H, 1, D]
        self.landmarks: Landmarks | None = None

    def read(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # [H, new, Dv]
        """Let new tokens, [H, new, D], read; keys and values are those of all tokens so far."""
        query, outputs = query * self.scale, []
        while query.size(1):
            rest = self.block - self.length % self.block
            own, query = query[:, :rest], query[:, rest:]
            self.length += own.size(1)
            outputs.append(self._read(own, key[:, : self.length], value[:, : self.length]))
            self.queries.append(own)
            if own.size(1) == rest:
                self._complete(torch.cat(self.queries, dim=1), key, value)
                self.queries.clear()
        return torch.cat(outputs, dim=1)

    def _read(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Let tokens of one block read, the last of the keys being their own."""
        near = key[:, self.far :], value[:, self.far :]
        scores = query @ near[0].mT
        later = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(later.triu(scores.size(2) - scores.size(1) + 1), -torch.inf)
        if not self.far:
            return scores.softmax(-1) @ near[1]
        assert self.landmarks is not None and self.mean is not None
        joined = self._join(query.detach())
        heads = torch.arange(len(joined), device=joined.device).unsqueeze(-1)
        index = joined + heads * self.landmarks.query.size(1)
        landmark, shift, total, weight = (
            rows(x, index)
            for x in (
                self.landmarks.query, self.landmarks.shift, self.landmarks.total,
                self.landmarks.weight,
            )
        )  # fmt: skip
        best = rows(self.landmarks.best, index) + heads.unsqueeze(-1) * key.size(1)  # [H, n, keys]
        best_key, best_value = (rows(x, best.flatten(1)) for x in (key, value))
        best_key, best_value = (x.unflatten(1, best.shape[1:]) for x in (best_key, best_value))
        best_scores = (best_key @ query.unsqueeze(-1)).squeeze(-1)
        offset = (query - landmark) @ self.mean.mT
        parts = torch.cat([scores, best_scores, offset + shift], dim=-1)
        weights = (parts - parts.detach().amax(-1, keepdim=True)).exp()
        sizes = [scores.size(-1), best.size(-1), 1]
        by_near, by_best, by_rest = weights.split(sizes, dim=-1)
        total = by_near @ near[1] + (by_best.unsqueeze(2) @ best_value).squeeze(2) + by_rest * total
        return total / ((by_near.sum(-1) + by_best.sum(-1)).unsqueeze(-1) + by_rest * weight)

    def _join(self, query: Tensor) -> Tensor:  # [H, n]
        """Return the landmark that each token is most like."""
        assert self.moments is not None and self.landmarks is not None
        centres = self.landmarks.query.detach() - self.moments.query
        towards = centres @ self.moments.spread
        squares = (towards * centres).sum(-1, keepdim=True)
        towards = towards / squares.clamp(min=torch.finfo(query.dtype).tiny).sqrt()
        return ((query - self.moments.query) @ towards.mT).argmax(-1)

    def _complete(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Take in a block that is complete: the one before it is far from now on."""
        start, far = self.length - self.block, self.length - self.block
        moments = Moments.of(query, key[:, start : self.length])
        self.moments = moments if self.moments is None else self.moments | moments
        positions = [t * t // 4 for t in range(2, 2 * self.length) if start <= t * t // 4]
        own = [p - start for p in positions if p < self.length]
        new = Landmarks.new(query[:, own], value)
        if far:
            mean, share = key[:, self.far : far].mean(1, keepdim=True), self.block / far
            self.mean = mean if self.mean is None else torch.lerp(self.mean, mean, share)
            assert self.landmarks is not None
            self.landmarks = self.landmarks.read(key, value, self.far, far, self.keys)
            new = new.read(key, value, 0, far, self.keys)
        self.landmarks = new if self.landmarks is None else self.landmarks | new
        self.far = far


def _highest(scores: Tensor, number: int) -> Tensor:
    """Return which are the highest of each row, of equal ones the first."""
    if number == 0:
        return torch.zeros_like(scores, dtype=torch.bool)
    lowest = scores.topk(number).values[..., -1:]
    above, equal = scores > lowest, scores == lowest
    left = number - above.sum(-1, keepdim=True)
    return above | (equal & (equal.cumsum(-1) <= left))
