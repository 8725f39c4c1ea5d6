"""Centroids and nearest ones, against their definition word by word."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.probes import MarkedSentence, MarkedWord
from jat_graph.probes.meaning.centroids import Choices, SenseTable, unit
from jat_graph.probes.meaning.states import MarkedStates
from jat_graph.probes.storage import Rows
from tests.probes.meaning.support import KEYS, sentence, sentences

SEVERAL = [pair for pair, keys in KEYS.items() if keys]


class Known:
    """What WordNet says, without its files."""

    def senses(self, lemma: str, pos: str) -> tuple[str, ...]:
        return KEYS.get((lemma, pos), ())


def marked(some: list[MarkedSentence], left_out: tuple[int, ...] = (), seed: int = 0) -> Any:
    """States of two layers, drawn at random."""
    counts = [sum(len(word.places) for word in one.marked) for one in some]
    values = np.random.default_rng(seed).normal(size=(2, sum(counts), 5)).astype(np.float32)
    starts = tuple(np.concatenate([[0], np.cumsum(counts)]).tolist())
    for row in left_out:
        values[:, starts[row] : starts[row + 1]] = 0
    return MarkedStates(some, Rows(values, starts, left_out))


def slow_states(states: MarkedStates, layer: int) -> list[tuple[MarkedWord, np.ndarray, bool]]:
    found = []
    for row, one in enumerate(states.sentences):
        at = states.rows.starts[row]
        for word in one.marked:
            own = states.rows.values[layer, at : at + len(word.places)]
            found.append((word, own.mean(0), row not in states.rows.left_out))
            at += len(word.places)
    return found


def slow_answer(word: MarkedWord, state: np.ndarray, training: MarkedStates, layer: int) -> bool:
    """Whether the nearest centroid, found one by one, is that of a right sense."""
    best, answer = -math.inf, None
    for key in Known().senses(word.lemma, word.pos):
        some = [own for w, own, read in slow_states(training, layer) if read and key in w.senses]
        if not some:
            continue
        middle = sum(some) / len(some)
        cosine = float(state @ middle) / (np.linalg.norm(state) * np.linalg.norm(middle))
        if cosine > best:
            best, answer = cosine, key
    if answer is None:
        answer = next(iter(Known().senses(word.lemma, word.pos)), None)
    return answer in word.senses


@st.composite
def drawn(draw: st.DrawFn) -> list[MarkedSentence]:
    """Sentences of marked words, some with several senses, some of several words."""
    found = []
    for number in range(draw(st.integers(1, 6))):
        parts = ["gook"]
        for lemma, pos in draw(st.lists(st.sampled_from(SEVERAL), max_size=4)):
            places = range(len(KEYS[lemma, pos]))
            senses = draw(st.lists(st.sampled_from(places), min_size=1, unique=True))
            parts.append(f"{lemma}={pos}{''.join(map(str, senses))}")
        found.append(sentence(" ".join(parts), f"text {number}"))
    return found


@given(training=drawn(), tests=drawn(), seed=st.integers(0, 9), left_out=st.booleans())
def test_nearest_centroids_follow_their_definition(
    training: list[MarkedSentence], tests: list[MarkedSentence], seed: int, left_out: bool
) -> None:
    learned = marked(training, (0,) if left_out else (), seed)
    if not any(learned.is_read):
        with pytest.raises(ValueError, match="training must have words with senses"):
            SenseTable.of(learned)
        return
    asked = marked(tests, (), seed + 1)
    if not asked.words:
        return
    table = SenseTable.of(learned)
    choices = Choices.of(asked.words, table, Known())  # type: ignore[arg-type]
    for layer in (0, 1):
        centroids = table.centroids(learned.layer(layer))
        for key, number in table.number.items():
            some = [own for w, own, read in slow_states(learned, layer) if read and key in w.senses]
            np.testing.assert_allclose(centroids[number], sum(some) / len(some), atol=1e-6)
        found = choices.nearest(asked.layer(layer), centroids)
        slow = [slow_answer(w, own, learned, layer) for w, own, _ in slow_states(asked, layer)]
        assert found.tolist() == slow


def test_of_equals_the_first_sense_is_taken() -> None:
    learned = marked([sentence("bark=n1 bark=n0 dill=n0")])
    asked = [w for w in sentence("bark=n0 bark=n1 book=n0 book=n1").marked]
    choices = Choices.of(asked, SenseTable.of(learned), Known())  # type: ignore[arg-type]
    found = choices.score(np.zeros(len(choices.word)))
    assert found.tolist() == [True, False, True, False]  # of book there is no training


def test_candidates_have_the_part_of_speech_of_the_word() -> None:
    learned = marked([sentence("bark=v0 bark=n0")])
    choices = Choices.of(
        sentence("bark=v0").marked,
        SenseTable.of(learned),
        Known(),  # type: ignore[arg-type]
    )
    assert choices.number.tolist() == [1]
    assert choices.score(np.zeros(1)).tolist() == [True]


def test_nothing_has_no_direction() -> None:
    given = np.array([[0, 0], [3, 4]], np.float32)
    np.testing.assert_allclose(unit(given), [[0, 0], [0.6, 0.8]])


def test_states_know_their_sentences() -> None:
    states = marked(sentences(6), left_out=(2,))
    assert states.sentence.tolist() == [0, 1, 2, 3, 4, 5]
    assert states.is_read.tolist() == [True, True, False, True, True, True]
    assert states.text_of(5) == "text 1"
