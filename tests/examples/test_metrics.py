"""Measures against values that are known."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.tasks.metrics import (
    find_spans,
    score_answers,
    score_classes,
    score_doubted_answers,
    score_losses,
    score_numbers,
    score_sizes,
    score_spans,
    write_tags,
)

CLASSES = ("accuracy", "f1", "macro_f1", "matthews", "exact_match")


def test_classes_by_hand() -> None:
    # 2 true positives, 1 false positive, 1 false negative, 2 true negatives
    scores = score_classes([1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0], CLASSES)
    assert scores["accuracy"] == scores["exact_match"] == pytest.approx(4 / 6)
    assert scores["f1"] == pytest.approx(2 / 3) == scores["macro_f1"]
    assert scores["matthews"] == pytest.approx((2 * 2 - 1 * 1) / math.sqrt(3**4))
    grouped = score_classes([[1, 0], [1], [0, 0]], [[1, 0], [0], [0, 1]], ("f1", "exact_match"))
    assert grouped == pytest.approx({"f1": 0.5, "exact_match": 1 / 3})


def test_correlations_by_hand() -> None:
    scores = score_numbers([1, 2, 3, 4], [1, 2, 4, 3])
    assert scores == pytest.approx({"pearson": 0.8, "spearman": 0.8, "mse": 0.5})
    assert score_numbers([1, 2, 9], [1, 2, 3])["spearman"] == pytest.approx(1.0)


def test_what_is_constant_tells_nothing() -> None:
    assert score_classes([1, 1, 1], [0, 1, 1], ("matthews",)) == {"matthews": 0.0}
    assert math.isnan(score_classes([0, 1, 1], [1, 1, 1], ("matthews",))["matthews"])
    assert score_numbers([1, 1, 1], [0, 1, 2])["pearson"] == 0.0
    assert math.isnan(score_numbers([0, 1, 2], [1, 1, 1])["spearman"])


def test_sizes_are_told_apart() -> None:
    scores = score_sizes([0, 2, 2, 0, 1], [(0, 1), (1, 1), (2, 2), (0, 2), (1, 3)])
    assert scores == {"accuracy": 0.8, "accuracy_1": 0.5, "accuracy_2": 1.0, "accuracy_3": 1.0}


def test_losses_by_hand() -> None:
    losses = np.array([0.0, 2.0, 4.0, 6.0], dtype=np.float32)
    assert score_losses(losses)["bits_per_token"] == pytest.approx(3 / math.log(2))
    scores = score_losses(losses, 8)
    assert scores["perplexity"] == pytest.approx(math.exp(3))
    assert scores["bits_per_character"] == pytest.approx(1.5 / math.log(2))
    assert score_losses(np.array([2000.0]))["perplexity"] == math.inf


# --- spans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O B-X I-X O", [["X", 1, 3]]),
        ("I-X I-X B-X", [["X", 0, 2], ["X", 2, 3]]),  # IOB1
        ("B-X I-Y", [["X", 0, 1], ["Y", 1, 2]]),
        ("O I-X O I-X", [["X", 1, 2], ["X", 3, 4]]),
        ("O O", []),
    ],
)
def test_spans_are_read_as_conlleval_does(tags: str, spans: list[list[Any]]) -> None:
    assert find_spans(tags.split()) == spans
    assert find_spans(write_tags(spans, len(tags.split()))) == spans


def test_spans_by_hand() -> None:
    right = [[["X", 0, 2], ["Y", 3, 4]], []]
    said = [[["X", 0, 2], ["Y", 2, 4]], [["X", 0, 2]]]
    assert score_spans(said, right) == pytest.approx({"f1": 0.4, "precision": 1 / 3, "recall": 0.5})
    assert set(score_spans([[]], [[]]).values()) == {0.0}


# --- answers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "right", "f1", "exact"),
    [
        ("Paris", ["Paris"], 1, 1),
        ("the  PARIS.", ["Paris"], 1, 1),  # articles, case, punctuation, spaces
        ("in Paris", ["Paris"], 2 / 3, 0),  # precision 1/2, recall 1
        ("Lyon", ["Paris", "Lyon"], 1, 1),  # the best of the right ones
        ("", ["Paris"], 0, 0),
    ],
)
def test_answers_by_hand(said: str, right: list[str], f1: float, exact: float) -> None:
    assert score_answers([said], [right]) == pytest.approx({"f1": f1, "exact_match": exact})


TEXTS = st.lists(st.sampled_from(["old", "house", "the", "red"]), max_size=3).map(" ".join)
DOUBTED = st.tuples(TEXTS, st.integers(-3, 3).map(float))


@given(st.lists(st.tuples(DOUBTED, st.lists(TEXTS, max_size=2)), min_size=1, max_size=8))
def test_a_limit_decides_what_is_given_and_the_best_is_that_of_all(cases: list[Any]) -> None:
    right = [texts for _, texts in cases]
    plain = [[t for t in texts if set(t.split()) - {"the"}] or [""] for texts in right]
    limits = [-4.0, *sorted({doubt for (_, doubt), _ in cases})]
    found = []
    for limit in limits:
        scores = score_doubted_answers([(t, doubt - limit) for (t, doubt), _ in cases], right)
        given_texts = [(t if doubt <= limit else "") for (t, doubt), _ in cases]
        assert scores["f1"] == pytest.approx(score_answers(given_texts, plain)["f1"])
        found.append(scores)
    for name in ("f1", "exact_match"):
        highest = max(scores[name] for scores in found)
        assert all(scores[f"best_{name}"] == pytest.approx(highest) for scores in found)
