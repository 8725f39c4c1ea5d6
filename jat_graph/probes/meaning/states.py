"""What a model makes of marked words, on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from jat_graph.probes.meaning.marked import MarkedSentence, MarkedWord
from jat_graph.probes.storage import Floats, Rows, stream_states
from jat_graph.probes.words import WordReader

Integers: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class MarkedStates:
    """The states of all marked words of sentences, and where these words are.

    Args:
        sentences: What was read.
        rows: The states of each of their words, those of one mark after the other.
    """

    sentences: Sequence[MarkedSentence]
    rows: Rows

    @cached_property
    def words(self) -> list[MarkedWord]:
        """The N marked words."""
        return [word for sentence in self.sentences for word in sentence.marked]

    @cached_property
    def sentence(self) -> Integers:  # [N]
        """The sentence of each."""
        return np.repeat(np.arange(len(self.sentences)), [len(s.marked) for s in self.sentences])

    @cached_property
    def is_read(self) -> NDArray[np.bool_]:  # [N]
        """Whether the model could read the sentence."""
        return ~np.isin(self.sentence, self.rows.left_out)

    def text_of(self, word: int) -> str:
        """The text that a marked word is in."""
        return self.sentences[int(self.sentence[word])].text

    @property
    def num_layers(self) -> int:
        """The embeddings and all layers."""
        return len(self.rows.values)

    def layer(self, layer: int) -> Floats:  # [N, D]
        """The state of each marked word after a layer: the mean over its words."""
        sizes = np.array([len(word.places) for word in self.words])
        starts = np.concatenate([[0], sizes.cumsum()[:-1]])
        sums = np.add.reduceat(self.rows.values[layer], starts, axis=0)
        mean: Floats = (sums / sizes[:, None]).astype(np.float32)
        return mean


def read_states(
    folder: str | Path, reader: WordReader, sentences: Sequence[MarkedSentence]
) -> MarkedStates:
    """Read the states of marked words, or find them where they were kept."""
    keep = [[p for word in sentence.marked for p in word.places] for sentence in sentences]
    words = [list(sentence.words) for sentence in sentences]
    return MarkedStates(sentences, stream_states(folder, reader, words, keep))
