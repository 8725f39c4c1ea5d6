"""Which pairs of words the attention probe learns from and is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jat_graph.probes.syntax.reading import Integers, frequent_relations
from jat_graph.probes.treebank import Sentence


@dataclass(frozen=True)
class Pairs:
    """Pairs of words with their labels, in the order of their sentences.

    The first word of a pair is the earlier one, so that the order does not tell which is the head.

    Args:
        rows: The sentence of each pair.
        words: The places of its words, the earlier first, ``[N, 2]``.
        labels: What is to be told.
    """

    rows: Integers
    words: Integers
    labels: Integers

    @classmethod
    def of(cls, found: Sequence[tuple[int, int, int, int]]) -> Pairs:
        """Collect sentence, words and label of each pair."""
        table = np.array(sorted(found), dtype=np.int64).reshape(-1, 4)
        return cls(table[:, 0], table[:, 1:3], table[:, 3])

    def __len__(self) -> int:
        """How many there are."""
        return len(self.rows)

    @property
    def distances(self) -> Integers:
        """How many words apart."""
        found: Integers = self.words[:, 1] - self.words[:, 0]
        return found

    def kept(self, left_out: Integers) -> Integers:
        """The places of pairs whose sentences were read."""
        return np.flatnonzero(~np.isin(self.rows, left_out))


def joined_or_not(
    sentences: Sequence[Sentence], most: int, generator: np.random.Generator
) -> Pairs:
    """Draw pairs with a relation, label 1, and as many of the same sentences without one, 0."""
    edges = [
        (row, min(edge), max(edge))
        for row, sentence in enumerate(sentences)
        for edge in _balanced(sentence, generator)
    ]
    if not edges:
        raise ValueError("sentences must have words without a relation, got none with four words")
    chosen = generator.permutation(len(edges))[: most // 2]
    positive = [edges[place] for place in chosen]
    counts = np.bincount([row for row, *_ in positive], minlength=len(sentences))
    found = [(*pair, 1) for pair in positive]
    for row in np.flatnonzero(counts).tolist():
        others = unrelated(sentences[row])
        drawn = generator.choice(len(others), counts[row], replace=False)
        found += [(row, *others[place], 0) for place in drawn]
    return Pairs.of(found)


def unrelated(sentence: Sentence) -> list[tuple[int, int]]:
    """Pairs of words, the earlier first, of which neither is the head of the other."""
    edges = {(min(edge), max(edge)) for edge in sentence.edges}
    length = len(sentence)
    pairs = ((first, second) for first in range(length) for second in range(first + 1, length))
    return [pair for pair in pairs if pair not in edges]


def _balanced(sentence: Sentence, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Edges of a sentence, no more than it has pairs without a relation."""
    edges, length = sentence.edges, len(sentence)
    others = length * (length - 1) // 2 - len(edges)
    if len(edges) <= others:
        return edges
    return [edges[place] for place in generator.permutation(len(edges))[:others]]


def of_each_relation(
    sentences: Sequence[Sentence],
    relations: Sequence[str],
    most: int,
    generator: np.random.Generator,
) -> Pairs:
    """Draw as many pairs of each relation, whose label is its place among them."""
    groups: dict[str, list[tuple[int, int, int, int]]] = {name: [] for name in relations}
    places = {name: place for place, name in enumerate(relations)}
    for row, sentence in enumerate(sentences):
        for word, head in sentence.edges:
            name = sentence.relations[word]
            if name in groups:
                pair = row, min(word, head), max(word, head), places[name]
                groups[name].append(pair)
    size = min(max(1, most // len(relations)), *map(len, groups.values()))
    return Pairs.of(
        [
            group[place]
            for group in groups.values()
            for place in generator.permutation(len(group))[:size]
        ]
    )


def shared_relations(
    train: Sequence[Sentence], test: Sequence[Sentence], number: int
) -> tuple[str, ...]:
    """The most frequent relations of the one that come in the other, too."""
    there = dict(frequent_relations(test))
    found = [name for name, _ in frequent_relations(train) if name in there][:number]
    if len(found) < 2:
        raise ValueError(f"train and test must share two relations at least, got {found}")
    return tuple(found)


def random_labels(
    parts: Sequence[tuple[Pairs, Sequence[Sentence]]],
    number: int,
    generator: np.random.Generator,
) -> tuple[list[Integers], Integers]:
    """Draw a label for every two word types: the control task.

    Returns the labels of each part, and which pairs of the last part the first one has, too.
    """
    types = [
        [
            f"{sentences[row].words[one].lower()}\t{sentences[row].words[other].lower()}"
            for row, (one, other) in zip(pairs.rows, pairs.words, strict=True)
        ]
        for pairs, sentences in parts
    ]
    known, places = np.unique(np.concatenate(types), return_inverse=True)
    labels = generator.integers(number, size=len(known))[places]
    cuts = np.cumsum([len(pairs) for pairs, _ in parts])[:-1]
    return np.split(labels, cuts), np.flatnonzero(np.isin(types[-1], types[0]))
