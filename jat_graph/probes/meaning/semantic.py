"""The semantic probe: a linear map after which the states of one sense are more alike."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.probes.meaning.centroids import SenseTable
from jat_graph.probes.meaning.states import Integers, MarkedStates
from jat_graph.probes.storage import Floats

LEAST = 2  # occurrences of a sense, and senses of a word
CLAMP = 0.1  # around the average before training, as in the source
VALID_SHARE = 0.1  # of the texts
BATCH, RATE = 256, 1e-3
LOOKS, STEPS, PATIENCE = 15, 20, 3  # at the loss on other texts, steps from one to the next
HELD_OUT = 2048  # triples of these texts


@dataclass(frozen=True)
class Triples:
    """Marked words of which there is another one in the same sense, and one in a different sense.

    They are in an order in which words of one lemma follow each other, and in it those of one
    sense.

    Args:
        word: The marked word of each.
        lemma: Where those of its lemma begin, and how many they are.
        sense: The same of its sense.
    """

    word: Integers  # [O]
    lemma: Integers  # [O, 2]
    sense: Integers  # [O, 2]

    @classmethod
    def of(cls, states: MarkedStates, table: SenseTable, texts: Collection[str]) -> Triples:
        """Find them in some of the texts."""
        return cls(*_layout(ambiguous_lemmas(states, table, texts)))

    def draw(self, number: int, generator: np.random.Generator) -> tuple[Integers, ...]:
        """Draw words, and for each one in the same sense and one in another: [number] each."""
        own = generator.integers(len(self.word), size=number)
        (start, size), (first, all_) = self.sense[own].T, self.lemma[own].T
        same = start + (own - start + generator.integers(1, size)) % size
        other = first + generator.integers(0, all_ - size)
        other += np.where(other >= start, size, 0)
        return self.word[own], self.word[same], self.word[other]


def ambiguous_lemmas(
    states: MarkedStates, table: SenseTable, texts: Collection[str]
) -> list[list[list[int]]]:
    """The marked words in some texts, by lemma and sense: two senses or more, each twice or more.

    Words that have several senses at once are left out.
    """
    blocks: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for word, sense in zip(table.word.tolist(), table.sense.tolist(), strict=True):
        own = states.words[word]
        if len(own.senses) == 1 and states.text_of(word) in texts:
            blocks[own.lemma, own.pos][sense].append(word)
    often = (
        [words for words in senses.values() if len(words) >= LEAST] for senses in blocks.values()
    )
    return [senses for senses in often if len(senses) >= LEAST]


def _layout(lemmas: list[list[list[int]]]) -> tuple[Integers, Integers, Integers]:
    """Put words one after the other: [O], [O, 2] and [O, 2]."""
    word: list[int] = []
    lemma, sense = [], []
    for senses in lemmas:
        first, size = len(word), sum(map(len, senses))
        for words in senses:
            lemma += [(first, size)] * len(words)
            sense += [(len(word), len(words))] * len(words)
            word += words
    return (
        np.array(word, np.int64),
        np.array(lemma, np.int64).reshape(-1, 2),
        np.array(sense, np.int64).reshape(-1, 2),
    )


def split_texts(states: MarkedStates, seed: int) -> tuple[set[str], set[str]]:
    """Draw texts for training, and those by which it ends."""
    texts = sorted({sentence.text for sentence in states.sentences})
    order = np.random.default_rng(seed).permutation(len(texts))
    number = max(1, round(VALID_SHARE * len(texts)))
    valid = {texts[place] for place in order[:number]}
    return set(texts) - valid, valid


def train_map(
    states: Floats, training: Triples, ending: Triples, rank: int, seed: int
) -> tuple[Floats, Floats]:  # [N, D] -> [R, D] twice
    """Return the semantic probe as it is trained, and the random map that it began as.

    The loss is how alike states of different senses are, less how alike those of the same sense
    are; cosines further than 0.1 from their average before training change nothing. Training ends
    when the loss on other texts falls no more.
    """
    draws, width = np.random.default_rng(seed), states.shape[1]
    start = torch.randn(rank, width, generator=torch.Generator().manual_seed(seed)) / width**0.5
    held_out = _states_of(states, ending.draw(HELD_OUT, draws))
    before = _cosines(start, held_out).mean(1)
    mapping = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([mapping], lr=RATE)
    best, least, patience = start, math.inf, PATIENCE
    for _ in range(LOOKS):
        with torch.no_grad():
            loss = float(_loss(mapping, held_out, before))
        if loss < least:
            best, least, patience = mapping.detach().clone(), loss, PATIENCE
        elif not (patience := patience - 1):
            break
        for _ in range(STEPS):
            optimizer.zero_grad()
            batch = _states_of(states, training.draw(BATCH, draws))
            _loss(mapping, batch, before).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return best.numpy(), start.numpy()


def _states_of(states: Floats, triples: tuple[Integers, ...]) -> Tensor:  # [3, T, D]
    return torch.from_numpy(states[np.stack(triples)])


def _cosines(mapping: Tensor, batch: Tensor) -> Tensor:  # [3, T, D] -> [2, T]
    """How alike words are to those of the same sense, and to those of another."""
    own, same, other = batch @ mapping.T
    return torch.stack([F.cosine_similarity(own, same), F.cosine_similarity(own, other)])


def _loss(mapping: Tensor, batch: Tensor, before: Tensor) -> Tensor:
    cosines, middle = _cosines(mapping, batch), before[:, None]
    same, other = cosines.clamp(middle - CLAMP, middle + CLAMP).mean(1)
    loss: Tensor = other - same
    return loss
