"""Which pairs of words the attention probe learns from and is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.probes.findings import Integers
from jat_graph.probes.treebank import Sentence

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Pairs:
    """Pairs of words, the earlier first so that the order does not tell which is the head."""

    rows: Integers  # the sentence of each, in rising order
    words: Integers  # [N, 2]
    labels: Integers

    @classmethod
    def of(cls, found: Sequence[tuple[int, int, int, int]]) -> Pairs:
        """Collect sentence, words and label of each pair."""
        table = np.array(sorted(found), dtype=np.int64).reshape(-1, 4)
        return cls(table[:, 0], table[:, 1:3], table[:, 3])

    def __len__(self) -> int:
        """How many there are."""
        return len(self.rows)


def joined_or_not(sentences: Sequence[Sentence], most: int, chance: np.random.Generator) -> Pairs:
    """Draw pairs with a relation, label 1, and as many of the same sentences without one, 0."""
    edges: list[tuple[int, int, int]] = []
    for row, sentence in enumerate(sentences):
        own, length = sentence.edges, len(sentence)
        others = length * (length - 1) // 2 - len(own)
        if len(own) > others:
            own = [own[index] for index in chance.permutation(len(own))[:others]]
        edges += [(row, min(edge), max(edge)) for edge in own]
    if not edges:
        raise ValueError("sentences must have words without a relation, got none with four words")
    chosen = [edges[index] for index in chance.permutation(len(edges))[: most // 2]]
    found = [(*pair, 1) for pair in chosen]
    counts = np.bincount([row for row, *_ in chosen], minlength=len(sentences))
    for row in np.flatnonzero(counts).tolist():
        related = {(min(edge), max(edge)) for edge in sentences[row].edges}
        pairs = combinations(range(len(sentences[row])), 2)
        unrelated = [pair for pair in pairs if pair not in related]
        drawn = chance.choice(len(unrelated), counts[row], replace=False)
        found += [(row, *unrelated[index], 0) for index in drawn]
    return Pairs.of(found)


def of_each_relation(
    sentences: Sequence[Sentence],
    relations: Sequence[str],
    most: int,
    chance: np.random.Generator,
) -> Pairs:
    """Draw as many pairs of each relation, whose label is its index among them."""
    groups: dict[str, list[tuple[int, int, int, int]]] = {name: [] for name in relations}
    for row, sentence in enumerate(sentences):
        for word, head in sentence.edges:
            if (name := sentence.relations[word]) in groups:
                pair = row, min(word, head), max(word, head), relations.index(name)
                groups[name].append(pair)
    size = min(max(1, most // len(relations)), *map(len, groups.values()))
    drawn = (
        group[index] for group in groups.values() for index in chance.permutation(len(group))[:size]
    )
    return Pairs.of(list(drawn))


def random_labels(
    pairs: Sequence[Pairs],
    parts: Sequence[Sequence[Sentence]],
    number: int,
    chance: np.random.Generator,
) -> tuple[list[Integers], Any]:
    """Draw a label for every two word types, the control task.

    Also tell which pairs of the last part the first one has, too.
    """
    types = [
        [
            f"{sentences[row].words[one].lower()}\t{sentences[row].words[other].lower()}"
            for row, (one, other) in zip(own.rows, own.words, strict=True)
        ]
        for own, sentences in zip(pairs, parts, strict=True)
    ]
    known, indices = np.unique(np.concatenate(types), return_inverse=True)
    labels = chance.integers(number, size=len(known))[indices]
    return np.split(labels, [len(pairs[0])]), np.isin(types[-1], types[0])
