"""The middle of each sense's states, and the sense whose middle is nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from jat_graph.probes.meaning.marked import MarkedWord
from jat_graph.probes.meaning.states import Integers, MarkedStates
from jat_graph.probes.meaning.wordnet import WordNet
from jat_graph.probes.storage import Floats


@dataclass(frozen=True)
class SenseTable:
    """The senses that occur in marked words, and where.

    A word of which annotators gave several senses counts for each of them.

    Args:
        number: The number of each sense, by its key.
        word: The marked word of each occurrence.
        sense: The number of its sense.
    """

    number: Mapping[str, int]
    word: Integers  # [O]
    sense: Integers  # [O]

    @classmethod
    def of(cls, states: MarkedStates) -> SenseTable:
        """Find the senses of the words that were read."""
        number: dict[str, int] = {}
        pairs = [
            (place, number.setdefault(key, len(number)))
            for place, word in enumerate(states.words)
            if states.is_read[place]
            for key in word.senses
        ]
        if not pairs:
            raise ValueError("training must have words with senses that the model reads, got none")
        word, sense = np.array(pairs, np.int64).T
        return cls(number, word, sense)

    @cached_property
    def counts(self) -> Integers:  # [S]
        """How often each sense occurs."""
        return np.bincount(self.sense, minlength=len(self.number))

    def centroids(self, states: Floats) -> Floats:  # [N, D] -> [S, D]
        """The mean state of each sense."""
        from scipy.sparse import csr_array

        shares = (1 / self.counts[self.sense]).astype(np.float32)
        shape = len(self.number), len(states)
        means = csr_array((shares, (self.sense, self.word)), shape) @ states
        found: Floats = np.asarray(means, np.float32)
        return found


@dataclass(frozen=True)
class Choices:
    """Which senses each of N words may have, and which are right.

    Candidates are the senses of the word that occur in the training, in WordNet's order; those of
    a word follow each other.

    Args:
        word: The word of each candidate.
        sense: Its number in the training.
        is_right: Whether it is one of the word's senses.
        first_is_right: Of each word, whether the first sense in WordNet is, candidate or not.
    """

    word: Integers  # [C]
    sense: Integers  # [C]
    is_right: NDArray[np.bool_]  # [C]
    first_is_right: NDArray[np.bool_]  # [N]

    @classmethod
    def of(cls, words: Sequence[MarkedWord], table: SenseTable, wordnet: WordNet) -> Choices:
        """Look up what WordNet says of words, and the training knows."""
        found, first = [], []
        for place, word in enumerate(words):
            keys = wordnet.senses(word.lemma, word.pos)
            first.append(bool(keys) and keys[0] in word.senses)
            known = [key for key in keys if key in table.number]
            found += [(place, table.number[key], key in word.senses) for key in known]
        columns = np.array(found, np.int64).reshape(-1, 3).T
        return cls(columns[0], columns[1], columns[2].astype(bool), np.array(first, bool))

    @cached_property
    def number(self) -> Integers:  # [N]
        """How many candidates each word has."""
        return np.bincount(self.word, minlength=len(self.first_is_right))

    def score(self, worth: NDArray[np.floating]) -> NDArray[np.bool_]:  # [C] -> [N]
        """Whether the candidate that is worth most is right, of several the first.

        WordNet's first sense answers where there is no candidate.
        """
        order = np.lexsort((np.arange(len(worth)), -worth, self.word))
        words, start = np.unique(self.word, return_index=True)
        found = self.first_is_right.copy()
        found[words] = self.is_right[order[start]]
        return found

    def nearest(self, states: Floats, centroids: Floats) -> NDArray[np.bool_]:  # [N, D], [S, D]
        """Whether the candidate whose centroid has the largest cosine is right."""
        own, middle = unit(states), unit(centroids)
        worth = np.einsum("cd,cd->c", own[self.word], middle[self.sense])
        return self.score(worth)


def unit(vectors: Floats) -> Floats:
    """Vectors of length 1; those of length 0 as they are."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    found: Floats = (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return found
