"""What a model answers when it is asked for the senses of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jat_graph.probes.intervals import resampled_ratio
from jat_graph.probes.meaning.centroids import Choices, SenseTable
from jat_graph.probes.meaning.marked import MarkedSentence
from jat_graph.probes.meaning.semantic import Triples, split_texts, train_map
from jat_graph.probes.meaning.states import MarkedStates, read_states
from jat_graph.probes.meaning.wordnet import WordNet
from jat_graph.probes.words import WordReader

FIRST, FREQUENT = "WordNet's first sense", "most frequent in SemCor"
NEAREST, RANDOM = "nearest centroid", "nearest centroid, random weights"
PROBE, RANDOM_MAP = "semantic probe", "random map"
METHODS = (FIRST, FREQUENT, NEAREST, RANDOM, PROBE, RANDOM_MAP)
ALL, AMBIGUOUS = "all", "ambiguous"  # columns of tables, beside those of the sets


@dataclass(frozen=True)
class Answers:
    """The states of words in the training and in the sets, and which senses these may have.

    Args:
        training: Words of the training.
        tests: N words of all sets, one set after the other.
        sets: Names of the sets, and how many sentences each has.
        table: The senses of the training.
        choices: Those that each word of the sets may have.
    """

    training: MarkedStates
    tests: MarkedStates
    sets: Mapping[str, int]
    table: SenseTable
    choices: Choices

    @classmethod
    def of(
        cls,
        reader: WordReader,
        training: Sequence[MarkedSentence],
        tests: Mapping[str, Sequence[MarkedSentence]],
        wordnet: WordNet,
        folder: str | Path,
    ) -> Answers:
        """Let a model read them."""
        asked = read_states(folder, reader, [one for some in tests.values() for one in some])
        learned = read_states(folder, reader, training)
        table = SenseTable.of(learned)
        choices = Choices.of(asked.words, table, wordnet)
        return cls(learned, asked, {k: len(v) for k, v in tests.items()}, table, choices)

    def baselines(self) -> list[dict[str, Any]]:
        """What one finds without a model."""
        frequent = self.choices.score(self.table.counts[self.choices.sense].astype(np.float64))
        return [
            self._row(FIRST, None, [self.choices.first_is_right]),
            self._row(FREQUENT, None, [frequent]),
        ]

    def nearest(self, layer: int, method: str = NEAREST) -> dict[str, Any]:
        """What the nearest centroid finds."""
        middle = self.table.centroids(self.training.layer(layer))
        return self._row(method, layer, [self.choices.nearest(self.tests.layer(layer), middle)])

    def mapped(self, layer: int, rank: int, seeds: Sequence[int]) -> list[dict[str, Any]]:
        """What it finds after semantic probes, and after the random maps that they began as."""
        states, asked = self.training.layer(layer), self.tests.layer(layer)
        middle = self.table.centroids(states)
        hits: list[list[NDArray[np.bool_]]] = [[], []]
        for seed in seeds:
            maps = train_map(states, *self._triples(seed), rank, seed)
            for own, one in zip(hits, maps, strict=True):
                own.append(self.choices.nearest(asked @ one.T, middle @ one.T))
        return [self._row(PROBE, layer, hits[0]), self._row(RANDOM_MAP, layer, hits[1])]

    def _triples(self, seed: int) -> tuple[Triples, Triples]:
        return split_triples(self.training, self.table, seed)

    @cached_property
    def _columns(self) -> dict[str, NDArray[np.bool_]]:  # [N] each
        """Which words each column of the table is over."""
        names = np.repeat(list(self.sets), list(self.sets.values()))[self.tests.sentence]
        whole = np.ones(len(names), bool)
        return {name: names == name for name in self.sets} | {
            AMBIGUOUS: self.choices.number > 1,
            ALL: whole,  # at the end: its interval comes next
        }

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many words each column of the table is over."""
        return {name: int(among.sum()) for name, among in self._columns.items()}

    def _row(
        self, method: str, layer: int | None, hits: Sequence[NDArray[np.bool_]]
    ) -> dict[str, Any]:
        """F1 of each column: the share of right answers, as each word gets one."""
        of_seeds = np.stack(hits).astype(np.float64)  # [seeds, N]
        number = sum(self.sets.values())

        def by_sentence(worth: NDArray[np.float64]) -> NDArray[np.float64]:
            counted = [
                np.bincount(self.tests.sentence, worth * among, number)
                for among in self._columns.values()
            ]
            return np.stack(counted, axis=1)

        ratio, low, high = resampled_ratio(
            by_sentence(of_seeds.mean(0)), by_sentence(np.ones(of_seeds.shape[1]))
        )
        place = list(self._columns).index(ALL)
        own = dict(zip(self._columns, ratio.tolist(), strict=True))
        interval = {f"{ALL}_low": float(low[place]), f"{ALL}_high": float(high[place])}
        spread = float(np.ptp(of_seeds.mean(1))) if len(of_seeds) > 1 else None
        return {"method": method, "layer": layer, **own, **interval, "spread": spread}


def split_triples(training: MarkedStates, table: SenseTable, seed: int) -> tuple[Triples, Triples]:
    """What semantic probes are trained on, and what says when to end."""
    fitting, ending = (Triples.of(training, table, some) for some in split_texts(training, seed))
    for name, some in (("train on", fitting), ("end by", ending)):
        if not len(some.word):
            raise ValueError(
                f"training must have words with two senses, each twice, to {name}, got none"
            )
    return fitting, ending
