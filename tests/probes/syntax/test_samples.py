"""Which pairs the attention probe draws."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.probes import Sentence
from jat_graph.probes.syntax.samples import (
    Pairs,
    joined_or_not,
    of_each_relation,
    random_labels,
    shared_relations,
    unrelated,
)
from tests.probes.syntax.support import RELATIONS, random_sentence, random_sentences, sentences


def has_edge(sentence: Sentence, one: int, other: int) -> bool:
    return sentence.heads[one] == other or sentence.heads[other] == one


@given(sentences())
def test_unrelated_words(found: list[Sentence]) -> None:
    for sentence in found:
        size = len(sentence)
        pairs = [(one, other) for one in range(size) for other in range(one + 1, size)]
        slow = [pair for pair in pairs if not has_edge(sentence, *pair)]
        assert unrelated(sentence) == slow


@given(st.integers(0, 2**20), st.integers(2, 60))
def test_as_many_pairs_have_a_relation_as_have_none(seed: int, most: int) -> None:
    found = random_sentences(8, seed, least=4)
    pairs = joined_or_not(found, most, np.random.default_rng(seed))
    seen = list(zip(pairs.rows.tolist(), pairs.words.tolist(), strict=True))
    assert len({(row, *words) for row, words in seen}) == len(pairs) <= most
    assert len(pairs) == min(most // 2, sum(_halves(own) for own in found)) * 2
    assert pairs.rows.tolist() == sorted(pairs.rows.tolist())
    for row in set(pairs.rows.tolist()):
        assert pairs.labels[pairs.rows == row].mean() == 0.5
    for (row, (one, other)), label in zip(seen, pairs.labels, strict=True):
        assert one < other and has_edge(found[row], one, other) == label


def _halves(sentence: Sentence) -> int:
    return min(len(sentence.edges), len(unrelated(sentence)))


@given(st.integers(0, 2**20), st.integers(1, 40))
def test_as_many_pairs_of_each_relation(seed: int, most: int) -> None:
    found = random_sentences(20, seed, least=4)
    names = shared_relations(found, found, 3)
    pairs = of_each_relation(found, names, most, np.random.default_rng(seed))
    there = Counter(
        relation
        for own in found
        for relation, head in zip(own.relations, own.heads, strict=True)
        if head >= 0
    )
    assert (
        list(names) == [name for name, _ in sorted(there.items(), key=lambda e: (-e[1], e[0]))][:3]
    )
    size = min(max(1, most // 3), there[names[-1]])
    assert Counter(pairs.labels.tolist()) == dict.fromkeys(range(3), size)
    for row, (one, other), label in zip(pairs.rows, pairs.words, pairs.labels, strict=True):
        own = found[row]
        word = one if own.heads[one] == other else other
        assert own.heads[word] == one + other - word and own.relations[word] == names[label]


def test_random_labels_are_of_word_types() -> None:
    parts = [random_sentences(200, seed, most=5, least=2) for seed in (0, 1)]
    drawn = [Pairs.of(_all(found)) for found in parts]
    both = list(zip(drawn, parts, strict=True))
    labels, met = random_labels(both, 4, np.random.default_rng(0))
    seen: list[dict[tuple[str, str], int]] = [{}, {}]
    for side, (pairs, found) in enumerate(both):
        for row, (one, other), label in zip(pairs.rows, pairs.words, labels[side], strict=True):
            types = found[row].words[one].lower(), found[row].words[other].lower()
            assert seen[side].setdefault(types, label) == label
    common = seen[0].keys() & seen[1].keys()
    assert common and all(seen[0][types] == seen[1][types] for types in common)
    slow = [
        place
        for place, (row, (one, other)) in enumerate(zip(drawn[1].rows, drawn[1].words, strict=True))
        if (parts[1][row].words[one].lower(), parts[1][row].words[other].lower()) in seen[0]
    ]
    assert met.tolist() == slow
    assert np.bincount(list(seen[0].values()), minlength=4).min() > 0


def _all(found: list[Sentence]) -> list[tuple[int, int, int, int]]:
    return [(row, 0, len(own) - 1, 0) for row, own in enumerate(found) for _ in range(2)]


def test_too_little_is_refused() -> None:
    short = [random_sentence(2, np.random.default_rng(0))]
    message = "^sentences must have words without a relation, got none with four words$"
    with pytest.raises(ValueError, match=message):
        joined_or_not(short, 10, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"^train and test must share two .*, got \['"):
        shared_relations(short, short, 5)
    assert set(RELATIONS) == set(shared_relations(*[random_sentences(30)] * 2, 9))
