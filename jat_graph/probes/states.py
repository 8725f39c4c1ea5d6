"""The states of marked words, and the senses that these have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jat_graph.probes.corpora import MarkedSentence, MarkedWord
from jat_graph.probes.findings import Floats, Integers
from jat_graph.probes.words import Rows, WordReader

LEAST = 2  # occurrences of a sense, and senses of a word, that the semantic probe learns from


@dataclass(frozen=True)
class MarkedStates:
    """The states of all N marked words of sentences, and the S senses that these have.

    A word of which annotators gave several senses counts for each of them.
    """

    sentences: Sequence[MarkedSentence]
    rows: Rows  # the states of each of their words, those of one mark after the other

    @classmethod
    def read(cls, reader: WordReader, sentences: Sequence[MarkedSentence]) -> MarkedStates:
        """Read the states of marked words, or find them where they were kept."""
        keep = [[at for word in own.marked for at in word.indices] for own in sentences]
        return cls(sentences, reader.read_states([own.words for own in sentences], keep))

    @cached_property
    def words(self) -> list[MarkedWord]:
        """The marked words."""
        return [word for sentence in self.sentences for word in sentence.marked]

    @cached_property
    def sentence(self) -> Integers:  # [N]
        """The sentence of each."""
        return np.repeat(np.arange(len(self.sentences)), [len(s.marked) for s in self.sentences])

    @cached_property
    def is_read(self) -> Any:  # [N] bool
        """Whether the model could read the sentence of each."""
        return ~np.isin(self.sentence, self.rows.left_out)

    @cached_property
    def number(self) -> dict[str, int]:
        """The number of each sense, by its key."""
        read = (word for word, is_read in zip(self.words, self.is_read, strict=True) if is_read)
        keys = dict.fromkeys(key for word in read for key in word.senses)
        if not keys:
            raise ValueError("training must have words with senses that the model reads, got none")
        return {key: number for number, key in enumerate(keys)}

    @cached_property
    def occurrences(self) -> Integers:  # [2, O]
        """Word and sense of each occurrence of a sense."""
        pairs = [
            (index, self.number[key])
            for index in np.flatnonzero(self.is_read).tolist()
            for key in self.words[index].senses
        ]
        return np.array(pairs, np.int64).T

    @cached_property
    def counts(self) -> Integers:  # [S]
        """How often each sense occurs."""
        return np.bincount(self.occurrences[1], minlength=len(self.number))

    def after(self, layer: int) -> Floats:  # [N, D]
        """Return the state of each marked word after a layer: the mean over its words."""
        sizes = np.array([len(word.indices) for word in self.words])
        starts = np.concatenate([[0], sizes.cumsum()[:-1]])
        sums = np.add.reduceat(self.rows.values[layer], starts, axis=0)
        mean: Floats = (sums / sizes[:, None]).astype(np.float32)
        return mean

    def centroids(self, states: Floats) -> Floats:  # [N, D] -> [S, D]
        """Return the mean state of each sense."""
        from scipy.sparse import csr_array

        word, sense = self.occurrences
        shares = (1 / self.counts[sense]).astype(np.float32)
        members = csr_array((shares, (sense, word)), (len(self.number), len(states)))
        return np.asarray(members @ states, np.float32)

    def lemmas(self, texts: Collection[str]) -> list[list[list[int]]]:
        """Return words in some texts by lemma and sense: two senses or more, each twice or more.

        Words that have several senses at once are left out.
        """
        blocks: dict[tuple[str, str], dict[int, list[int]]] = {}
        for index, sense in self.occurrences.T.tolist():
            own = self.words[index]
            if len(own.senses) == 1 and self.sentences[self.sentence[index]].text in texts:
                senses = blocks.setdefault((own.lemma, own.pos), {})
                senses.setdefault(sense, []).append(index)
        often = ([own for own in some.values() if len(own) >= LEAST] for some in blocks.values())
        return [senses for senses in often if len(senses) >= LEAST]
