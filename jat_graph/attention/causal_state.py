"""What the tokens of a causal sequence leave behind for those that read it by clusters."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.adjacency.clusters import causal_landmarks, number_of_landmarks
from jat_graph.graph_config import ClusterRule
from jat_graph.kernels.best_so_far import NOTHING, follow_best

SPAN = 4096  # keys that a new landmark reads at a time


class Keys(NamedTuple):
    """Keys and values of one sequence, which stay where they are, in any precision."""

    key: Tensor  # [G, n, D]
    value: Tensor  # [G, n, Dv]
    owners: Tensor  # the head of keys that each head reads, [H]
    even: bool  # whether each head of keys serves as many neighbouring heads as the next

    def part(self, start: int, end: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return those of some positions; heads may share them."""
        parts = [x[:, start:end] for x in self[:2]]
        if not self.even:
            parts = [x.index_select(0, self.owners) for x in parts]
        return parts[0].to(dtype), parts[1].to(dtype)

    def at(self, head: Tensor, position: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return those that some heads have at some positions, ``[..., D]`` and ``[..., Dv]``."""
        owner = self.owners[head]
        return tuple(_rows(x, owner, position).to(dtype) for x in self[:2])  # type: ignore[return-value]


def _rows(x: Tensor, owner: Tensor, position: Tensor) -> Tensor:  # [G, n, D] -> [..., D]
    """Return rows of a tensor that stays where it is, by one index, which is faster than two."""
    width = x.size(-1)
    steps = [stride // max(width, 1) for stride in x.stride()[:2]]
    if not width or x.stride() != (steps[0] * width, steps[1] * width, 1):
        return x[owner, position]
    number = 1 + sum(step * (size - 1) for step, size in zip(steps, x.shape, strict=False))
    index = owner * steps[0] + position * steps[1]
    rows = x.as_strided((number, width), (width, 1)).index_select(0, index.flatten())
    return rows.view(*index.shape, width)


def shared_product(x: Tensor, y: Tensor) -> Tensor:  # [H, a, b], [G, b, c] -> [H, a, c]
    """Return the product of each head with what it shares with its neighbours."""
    rows = x.reshape(len(y), len(x) // len(y) * x.size(1), x.size(-1))
    return (rows @ y).view(*x.shape[:2], y.size(-1))


class Moments(NamedTuple):
    """Number and means of tokens, and the spread of their keys."""

    number: int
    query: Tensor  # [H, 1, D]
    key: Tensor  # [G, 1, D]
    spread: Tensor  # sum of products of centred keys, [G, D, D]

    @classmethod
    def of(cls, query: Tensor, key: Tensor) -> Moments:  # [H, n, D], [G, n, D]
        """Return those of some tokens."""
        mean = key.mean(1, keepdim=True)
        centred = key - mean
        return cls(key.size(1), query.mean(1, keepdim=True), mean, centred.mT @ centred)

    def __or__(self, other: Moments) -> Moments:
        """Return those of all tokens of both (Chan, Golub and LeVeque, 1979)."""
        number = self.number + other.number
        share, apart = other.number / number, other.key - self.key
        spread = self.spread + other.spread + apart.mT @ apart * (self.number * share)
        query = torch.lerp(self.query, other.query, share)
        return Moments(number, query, self.key + apart * share, spread)


class Landmarks(NamedTuple):
    """Tokens that stand for clusters, and what each has read of the far keys."""

    query: Tensor  # scaled, [H, m, D]
    best: Tensor  # positions of the keys that it scores highest, in any order, int32 [H, m, ≤ keys]
    score: Tensor  # of these, [H, m, ≤ keys]
    shift: Tensor  # the highest score of the others, [H, m, 1]
    total: Tensor  # of the others: weights, e to the scores less the shift, times values
    weight: Tensor  # the sum of these weights, [H, m, 1]

    @classmethod
    def new(cls, query: Tensor, value_width: int) -> Landmarks:
        """Return landmarks that have read nothing."""
        nothing = query.new_full((*query.shape[:2], 1), NOTHING)
        none = nothing[..., :0]
        total = query.new_zeros(*query.shape[:2], value_width)
        return cls(query, none.int(), none, nothing, total, torch.zeros_like(nothing))

    def read(self, keys: Keys, start: int, end: int, number: int) -> Landmarks:
        """Return them after the keys of some positions, best keys being at most so many."""
        for first in range(start, end, SPAN):
            self = self._read(keys, first, min(first + SPAN, end), number)
        return self

    def _read(self, keys: Keys, start: int, end: int, number: int) -> Landmarks:
        """Return them after few keys; nothing is subtracted, so that nothing cancels."""
        key, value = keys.part(start, end, self.query.dtype)
        scores = shared_product(self.query, key.mT).unsqueeze(2)  # one block
        fill = 0, max(0, number - self.best.size(-1))
        best, score = (
            F.pad(self.best.long(), fill, value=-1),
            F.pad(self.score, fill, value=-torch.inf),
        )
        none = best.new_empty(len(best), 0)
        before = best, score, self.shift.squeeze(-1), start
        course = follow_best(scores, number, none, none, before=before)
        shift = course.largest
        factor, weights = (self.shift - shift).exp_(), scores.squeeze(2).exp_()
        total = shared_product(weights, value).addcmul_(self.total, factor)
        weight = weights.sum(-1, keepdim=True).addcmul_(self.weight, factor)
        head, landmark, _, position = course.left.unbind(-1)
        if len(head):  # keys that are among the best no more
            index = head, landmark
            weights = (course.score.unsqueeze(-1) - shift[index]).exp_()
            value = keys.at(head, position, self.query.dtype)[1]
            total.index_put_(index, weights * value, accumulate=True)
            weight.index_put_(index, weights, accumulate=True)
        best, score = (x[..., :end] for x in (course.kept, course.kept_score))
        return Landmarks(self.query, best.int(), score, shift, total, weight)

    def __or__(self, other: Landmarks) -> Landmarks:
        """Return both, in order; as many best keys have been read of both, or none at all."""
        return Landmarks(*(torch.cat(pair, dim=1) for pair in zip(self, other, strict=True)))


class CausalState(NamedTuple):
    """What the first tokens of a sequence left behind for heads that read by one rule.

    Far keys are those of complete blocks but the last. Heads that share keys, G of them, share what
    is of keys alone. Nothing is written to, so that beams may share a state.
    """

    length: int  # tokens
    queries: Tensor  # scaled, of the block that is not complete, [H, length % block, D]
    moments: Moments  # of the complete blocks
    mean: Tensor  # of the far keys that landmarks have read, [G, 1, D]
    towards: Tensor  # what a token's centred query is multiplied by to join a landmark, [H, m, D]
    query: Tensor  # the landmarks, as they are named there
    best: Tensor
    score: Tensor
    shift: Tensor
    total: Tensor
    weight: Tensor

    @classmethod
    def new(cls, query: Tensor, keys: Keys) -> CausalState:
        """Return what no tokens leave behind; queries, of any, have the precision of the state."""
        none = query.new_empty(len(query), 0, query.size(-1))  # no view, which would keep them all
        shared = len(keys.key) if keys.even else len(keys.owners)
        mean = query.new_zeros(shared, 1, query.size(-1))
        moments = Moments(0, query.new_zeros(len(query), 1, query.size(-1)), mean, mean.mT @ mean)
        return cls(0, none, moments, mean, none, *Landmarks.new(none, keys.value.size(-1)))

    @property
    def complete(self) -> int:
        """Number of tokens in complete blocks."""
        return self.length - self.queries.size(1)

    def read(self, query: Tensor, keys: Keys, rule: ClusterRule) -> Tensor:  # [H, n, Dv]
        """Return what the next tokens of one block read; queries are scaled, ``[H, n, D]``."""
        far = self.complete - rule.block  # tokens in the first two blocks are dense
        key, value = keys.part(far, self.length + query.size(1), query.dtype)
        scores = shared_product(query, key.mT)
        if query.size(1) > 1:
            later = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device)
            scores.masked_fill_(later.triu_(1 + scores.size(2) - scores.size(1)), -torch.inf)
        joined = ((query - self.moments.query) @ self.towards.mT).argmax(-1)
        heads = torch.arange(len(joined), device=joined.device).unsqueeze(-1)
        own = Landmarks(*(_rows(x, heads, joined) for x in self[5:]))
        best_key, best_value = keys.at(heads.unsqueeze(-1), own.best, query.dtype)
        parts = [scores, (best_key @ query.unsqueeze(-1)).squeeze(-1)]
        if rule.propagate:
            parts.append(shared_product(query - own.query, self.mean.mT) + own.shift)
        sizes, every = [part.size(-1) for part in parts], torch.cat(parts, dim=-1)
        weights = (every - every.amax(-1, keepdim=True)).exp_()
        near, best, *rest = weights.split_with_sizes(sizes, dim=-1)
        total = shared_product(near, value) + (best.unsqueeze(-2) @ best_value).squeeze(-2)
        weight = near.sum(-1, keepdim=True) + best.sum(-1, keepdim=True)
        for others in rest:
            total.addcmul_(others, own.total)
            weight.addcmul_(others, own.weight)
        return total / weight

    def extend(self, query: Tensor) -> CausalState:
        """Return the state after the next tokens, which may complete a block but not begin one."""
        queries = torch.cat([self.queries, query], dim=1)
        return self._replace(length=self.length + query.size(1), queries=queries)

    def close(self, keys: Keys, rule: ClusterRule, first: int) -> CausalState:
        """Return the state after a block is complete: the one before it is far from now on.

        Up to the first token that reads by clusters it may be several blocks, and landmarks read
        nothing; there they read all that is far.
        """
        start, end, dtype = self.complete, self.length, self.queries.dtype
        moments = self.moments | Moments.of(self.queries, keys.part(start, end, dtype)[0])
        own = causal_landmarks(end, self.query.device)[number_of_landmarks(start) :] - start
        new, old = Landmarks.new(self.queries[:, own], self.total.size(-1)), Landmarks(*self[5:])
        mean = self.mean
        if end >= first:
            known, far = start - rule.block if start >= first else 0, end - rule.block
            added = keys.part(known, far, dtype)[0].mean(1, keepdim=True)
            mean = torch.lerp(mean, added, 1 - known / far)
            old = old.read(keys, known, far, rule.keys)
            new = new.read(keys, 0, far, rule.keys) if len(own) else new
        every = old | new if len(own) else old
        towards = directions(every.query, moments)
        return CausalState(end, self.queries[:, :0], moments, mean, towards, *every)


def directions(query: Tensor, moments: Moments) -> Tensor:  # [H, m, D]
    """Return what queries less their mean are multiplied by to find the landmark most like them."""
    centred = query - moments.query
    towards = shared_product(centred, moments.spread)
    squares = (towards * centred).sum(-1, keepdim=True)
    return towards / squares.clamp(min=torch.finfo(query.dtype).tiny).sqrt()
