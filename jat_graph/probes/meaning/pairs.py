"""Pairs of sentences that have a word in two senses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from jat_graph.probes.meaning.centroids import SenseTable
from jat_graph.probes.meaning.marked import MarkedSentence, MarkedWord
from jat_graph.probes.meaning.semantic import ambiguous_lemmas
from jat_graph.probes.meaning.states import Integers, MarkedStates

JOINED_BY = "and"
ALONE, OPPOSITE, CHANCE = "alone", "with the other sense", "with a random sentence"


@dataclass(frozen=True)
class SensePairs:
    """P pairs of marked words of one lemma, in two senses and two sentences.

    Args:
        words: The places of both among the marked words, ``[P, 2]``.
        joined: For each pair three sentences: both joined, in which both words are marked; the
            first before a random one; and the second behind one.
    """

    words: Integers
    joined: list[MarkedSentence]


def draw_pairs(states: MarkedStates, table: SenseTable, number: int, seed: int) -> SensePairs:
    """Draw pairs, each of another lemma; fewer where there are not so many."""
    draws = np.random.default_rng(seed)
    lemmas = ambiguous_lemmas(states, table, {one.text for one in states.sentences})
    words: list[tuple[int, int]] = []
    joined: list[MarkedSentence] = []
    for place in draws.permutation(len(lemmas)):
        senses = lemmas[place]
        two = draws.choice(len(senses), 2, replace=False)
        first, second = (int(draws.choice(senses[sense])) for sense in two)
        if states.sentence[first] != states.sentence[second]:
            words.append((first, second))
            joined += _joined(states, first, second, draws)
        if len(words) == number:
            break
    if not words:
        raise ValueError("training must have words with two senses, each twice, got none")
    return SensePairs(np.array(words), joined)


def _joined(
    states: MarkedStates, first: int, second: int, draws: np.random.Generator
) -> Iterator[MarkedSentence]:
    one, other = (states.sentences[int(states.sentence[word])] for word in (first, second))
    before, behind = (
        _alone(sentence, states.words[word]) for sentence, word in ((one, first), (other, second))
    )
    yield _join(before, behind)
    lemma = states.words[first].lemma
    yield _join(before, _random_sentence(states, lemma, draws))
    yield _join(_random_sentence(states, lemma, draws), behind)


def _alone(sentence: MarkedSentence, word: MarkedWord) -> MarkedSentence:
    """A sentence in which only one word is marked."""
    return MarkedSentence(sentence.words, (word,), sentence.text)


def _random_sentence(
    states: MarkedStates, lemma: str, draws: np.random.Generator
) -> MarkedSentence:
    """A sentence without a lemma, nothing marked in it."""
    order = (states.sentences[place] for place in draws.permutation(len(states.sentences)))
    without = (one for one in order if all(word.lemma != lemma for word in one.marked))
    found = next(without, None)
    if found is None:
        raise ValueError(f"training must have a sentence without {lemma!r}, got none")
    return MarkedSentence(found.words, (), found.text)


def _join(first: MarkedSentence, second: MarkedSentence) -> MarkedSentence:
    ahead = len(first) + 1
    moved = tuple(
        MarkedWord(word.lemma, word.pos, word.senses, tuple(ahead + place for place in word.places))
        for word in second.marked
    )
    return MarkedSentence(
        (*first.words, JOINED_BY, *second.words), first.marked + moved, first.text
    )
