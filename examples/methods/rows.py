"""What a method sees: the queries of some tokens, and all keys that these may read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

FIRST, NEAR = 4, 64  # tokens that all read; that are around a token, or before it in a decoder
LARGE = 1e30  # more than scores differ by


@dataclass(frozen=True, eq=False)
class Text:
    """A text's queries and keys, ``[heads, tokens, features]``; last queries have the last keys."""

    query: Tensor
    key: Tensor
    scale: float
    causal: bool

    def split(self, size: int, budget: int) -> Iterator[Rows]:
        """Yield so many queries at a time."""
        queries, keys = self.query.size(1), self.key.size(1)
        for start in range(0, queries, size):
            stop = min(start + size, queries)
            place = torch.arange(start, stop, device=self.key.device) + keys - queries
            length = keys - queries + stop if self.causal else keys
            yield Rows(self, self.query[:, start:stop], place, length, budget)


class Rows:
    """Some queries of a text, and their scores.

    Args:
        text: The whole text.
        query: Queries ``[heads, queries, features]``.
        place: Where each stands in the text ``[queries]``.
        length: How many of the text's keys, from the first on, any of them may read.
        budget: How many keys a token reads exactly.
    """

    def __init__(self, text: Text, query: Tensor, place: Tensor, length: int, budget: int) -> None:
        self.text, self.query, self.place, self.length = text, query, place, length
        self.budget = budget
        self.key = text.key[:, :length]
        self.distance = place[:, None] - torch.arange(length, device=place.device)
        self.allowed = self.distance >= 0 if text.causal else torch.ones_like(self.distance) > 0
        self.later = torch.zeros_like(self.allowed, dtype=query.dtype)
        self.later.masked_fill_(~self.allowed, -torch.inf)
        self.scores = self.score(query)  # [heads, queries, keys]

    def score(self, query: Tensor) -> Tensor:
        """Return the scores of queries, -inf where they may not read."""
        return (query * self.text.scale @ self.key.mT).add_(self.later)

    def around(self, keys: int) -> Tensor:  # bool, [queries, keys]
        """Which keys are among so many around a token, or before it, and it itself."""
        near = self.distance < keys if self.text.causal else 2 * self.distance.abs() <= keys
        return near & self.allowed

    def with_first(self, exact: Tensor) -> Tensor:  # bool, [queries, keys], both
        """Add the first tokens."""
        first = torch.arange(self.length, device=exact.device) < FIRST
        return (exact | first) & self.allowed

    def choose(self, likely: Tensor) -> Tensor:  # bool, [heads, queries, keys]
        """Choose the first tokens, a window, and what is likeliest elsewhere."""
        if self.budget >= self.length:
            return self.allowed.expand_as(likely)
        always = self.with_first(self.around(NEAR))
        likely = likely + self.later.masked_fill(always, torch.inf)
        return (likely >= self._least(likely)) & self.allowed

    def _least(self, likely: Tensor) -> Tensor:
        """Return what the last of the budget's keys has."""
        if likely.is_cuda:
            return likely.topk(self.budget, sorted=False).values.amin(-1, keepdim=True)
        place = self.length - self.budget  # on a CPU, topk takes many times as long
        return torch.from_numpy(np.partition(likely.numpy(), place)[..., place : place + 1])

    def read(self, exact: Tensor) -> Tensor:
        """Return attention weights of some keys, and nothing elsewhere."""
        # On a CPU, ``masked_fill`` takes three times as long.
        return self.scores.add((~exact).to(self.scores), alpha=-LARGE).softmax(-1)
