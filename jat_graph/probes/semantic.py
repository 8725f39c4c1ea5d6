"""The semantic probe: a linear map after which the states of one sense are more alike."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.probes.findings import Floats, Integers
from jat_graph.probes.states import MarkedStates

if TYPE_CHECKING:
    pass

CLAMP = 0.1  # around the average before training, as in the source
VALID_SHARE = 0.1  # of the texts
BATCH, RATE = 256, 1e-3
LOOKS, STEPS, PATIENCE = 15, 20, 3  # at the loss on other texts, steps from one to the next
HELD_OUT = 2048  # triples of these texts


@dataclass(frozen=True)
class Triples:
    """Marked words of which there is another one in the same sense, and one in a different sense.

    Words of one lemma follow each other, and among them those of one sense.
    """

    word: Integers  # [O]
    lemma: Integers  # [O, 2], where those of its lemma begin, and how many they are
    sense: Integers  # [O, 2], the same of its sense

    @classmethod
    def of(cls, states: MarkedStates, texts: Collection[str]) -> Triples:
        """Find them in some of the texts."""
        word: list[int] = []
        lemma, sense = [], []
        for senses in states.lemmas(texts):
            first, size = len(word), sum(map(len, senses))
            for words in senses:
                lemma += [(first, size)] * len(words)
                sense += [(len(word), len(words))] * len(words)
                word += words
        pairs = (np.array(own, np.int64).reshape(-1, 2) for own in (lemma, sense))
        return cls(np.array(word, np.int64), *pairs)

    def draw(self, states: Floats, number: int, chance: np.random.Generator) -> Tensor:
        """Draw words, and for each one in the same sense and one in another: [3, number, D]."""
        own = chance.integers(len(self.word), size=number)
        (start, size), (first, all_) = self.sense[own].T, self.lemma[own].T
        same = start + (own - start + chance.integers(1, size)) % size
        other = first + chance.integers(0, all_ - size)
        other += np.where(other >= start, size, 0)
        return torch.from_numpy(states[self.word[np.stack([own, same, other])]])


def split_triples(states: MarkedStates, seed: int) -> tuple[Triples, Triples]:
    """Draw texts that semantic probes are trained on, and those by which training ends."""
    texts = np.array(sorted({sentence.text for sentence in states.sentences}))
    order = texts[np.random.default_rng(seed).permutation(len(texts))].tolist()
    number = max(1, round(VALID_SHARE * len(texts)))
    found = tuple(Triples.of(states, set(own)) for own in (order[number:], order[:number]))
    for name, some in zip(("train on", "end by"), found, strict=True):
        if not len(some.word):
            wanted = "training must have words with two senses, each twice"
            raise ValueError(f"{wanted}, to {name}, got none")
    return found[0], found[1]


def train_map(
    states: Floats, training: Triples, ending: Triples, seed: int
) -> tuple[Floats, Floats]:  # [N, D] -> [D, D] twice
    """Return the semantic probe as it is trained, and the random map that it began as.

    The loss is how alike states of different senses are, less how alike those of the same sense
    are; cosines further than 0.1 from their average before training change nothing. Training ends
    when the loss on other texts falls no more.
    """
    chance, width = np.random.default_rng(seed), states.shape[1]
    start = torch.randn(width, width, generator=torch.Generator().manual_seed(seed)) / width**0.5
    held_out = ending.draw(states, HELD_OUT, chance)
    middle = _cosines(start, held_out).mean(1, keepdim=True)

    def loss_of(mapping: Tensor, batch: Tensor) -> Tensor:
        same, other = _cosines(mapping, batch).clamp(middle - CLAMP, middle + CLAMP).mean(1)
        loss: Tensor = other - same
        return loss

    mapping = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([mapping], lr=RATE)
    best, least, patience = start, math.inf, PATIENCE
    for _ in range(LOOKS):
        with torch.no_grad():
            loss = float(loss_of(mapping, held_out))
        if loss < least:
            best, least, patience = mapping.detach().clone(), loss, PATIENCE
        elif not (patience := patience - 1):
            break
        for _ in range(STEPS):
            optimizer.zero_grad()
            batch = training.draw(states, BATCH, chance)
            loss_of(mapping, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return best.numpy(), start.numpy()


def _cosines(mapping: Tensor, batch: Tensor) -> Tensor:  # [3, T, D] -> [2, T]
    """How alike words are to those of the same sense, and to those of another."""
    own, same, other = batch @ mapping.T
    return torch.stack([F.cosine_similarity(own, same), F.cosine_similarity(own, other)])
