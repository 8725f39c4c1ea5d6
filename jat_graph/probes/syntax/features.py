"""What a model gives to pairs of words, read once for all questions about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from jat_graph.data.storage import digest
from jat_graph.probes.storage import stream_rows
from jat_graph.probes.syntax.reading import Floats, Integers, hides_later, seen_maps, words_of
from jat_graph.probes.syntax.samples import Pairs
from jat_graph.probes.treebank import Sentence
from jat_graph.probes.words import WordReader, WordReading

Parts: TypeAlias = tuple[Sequence[Sentence], Sequence[Sentence]]


@dataclass(frozen=True)
class Question:
    """One drawing of pairs for one task."""

    task: str
    place: int  # of the seed
    seed: int
    classes: int
    parts: tuple[Pairs, Pairs]  # to learn from, and to be asked about


class Features:
    """What models give to the pairs of all questions, read once."""

    def __init__(self, folder: Path, parts: Parts, questions: Sequence[Question]) -> None:
        self.folder, self.parts, self.questions = folder, parts, questions

    def of(self, reader: WordReader, place: int | None = None) -> dict[int, list[Described]]:
        """Describe the pairs of each question, or of those of one seed alone."""
        asked = [
            number
            for number, question in enumerate(self.questions)
            if place in (None, question.place)
        ]
        sides = [
            describe_pairs(
                self.folder,
                reader,
                sentences,
                [self.questions[number].parts[side] for number in asked],
            )
            for side, sentences in enumerate(self.parts)
        ]
        return {number: list(both) for number, *both in zip(asked, *sides, strict=True)}


@dataclass(frozen=True)
class Described:
    """The pairs that a model has read, and what it gives to each."""

    places: Integers  # among all pairs
    values: Floats  # [n, 2 · C]


def describe_pairs(
    folder: str | Path,
    reader: WordReader,
    sentences: Sequence[Sentence],
    drawn: Sequence[Pairs],
) -> list[Described]:
    """Describe pairs by what all heads give both ways; sentences without any are not read."""
    table = np.concatenate([np.column_stack([pairs.rows, pairs.words]) for pairs in drawn])
    known, places = np.unique(table, axis=0, return_inverse=True)
    used, counts = np.unique(known[:, 0], return_counts=True)
    words = np.split(known[:, 1:], np.cumsum(counts)[:-1])
    later_hidden = hides_later(reader)

    def rows_of(reading: WordReading) -> Floats:  # [2, n, C]
        maps = seen_maps(reading, later_hidden, 0.0)
        one, other = words[reading.row].T
        return np.stack([maps[:, one, other].T, maps[:, other, one].T])

    rows = stream_rows(
        folder,
        reader,
        words_of([sentences[row] for row in used]),
        rows_of,
        counts.tolist(),
        (2, len(reader.heads)),
        {"rows": "pairs", "pairs": digest(known.tolist())},
    )
    values = np.concatenate(list(rows.values), axis=1)
    kept = [pairs.kept(used[list(rows.left_out)]) for pairs in drawn]
    cuts = np.split(places.ravel(), np.cumsum([len(pairs) for pairs in drawn])[:-1])
    return [Described(own, values[part[own]]) for own, part in zip(kept, cuts, strict=True)]
