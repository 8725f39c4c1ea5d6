import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks.answers import score_answers, score_doubted_answers


@pytest.mark.parametrize(
    ("said", "right", "f1", "exact"),
    [
        ("Paris", ["Paris"], 1, 1),
        ("the  PARIS.", ["Paris"], 1, 1),  # articles, case, punctuation, spaces
        ("in Paris", ["Paris"], 2 / 3, 0),  # precision 1/2, recall 1
        ("Lyon", ["Paris", "Lyon"], 1, 1),  # the best of the right ones
        ("Lyon", ["Paris"], 0, 0),
        ("", ["Paris"], 0, 0),
    ],
)
def test_hand_computed_answers(said: str, right: list[str], f1: float, exact: float) -> None:
    scores = score_answers([said], [right])
    assert scores == pytest.approx({"f1": f1, "exact_match": exact})


def test_questions_weigh_the_same() -> None:
    scores = score_answers(["a b", "c"], [["x"], ["c", "c d"]])
    assert scores == pytest.approx({"f1": 0.5, "exact_match": 0.5})


@pytest.mark.parametrize(
    ("said", "right", "message"),
    [
        ([], [], "said and right must have one length above 0, got 0 and 0"),
        (["x"], [["x"], ["x"]], "said and right must have one length above 0, got 1 and 2"),
        (["x", "x"], [["x"], []], "question 1 must have right answers, got none"),
    ],
)
def test_questions_without_the_one_or_the_other(
    said: list[str], right: list[list[str]], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        score_answers(said, right)


# --- questions without an answer -----------------------------------------------------------------

texts = st.lists(st.sampled_from(["old", "house", "the", "red"]), max_size=3).map(" ".join)
doubted = st.tuples(texts, st.integers(-3, 3).map(float))
questions = st.lists(st.tuples(doubted, st.lists(texts, max_size=2)), min_size=1, max_size=8)


def both(cases: list[Any], limit: float = 0.0) -> tuple[list[Any], list[Any]]:
    """Return answers and right ones, of which those are given that are doubted so much at most."""
    said = [(text, doubt - limit) for (text, doubt), _ in cases]
    return said, [right for _, right in cases]


def rights(texts: list[str]) -> list[str]:
    """Return the right answers; what only has articles is none, and then none is right."""
    return [text for text in texts if set(text.split()) - {"the"}] or [""]


@given(questions)
def test_a_limit_decides_what_is_given(cases: list[Any]) -> None:
    for limit in (-1.0, 0.0, 2.5):
        found = score_doubted_answers(*both(cases, limit))
        given_texts = [(text if doubt <= limit else "") for (text, doubt), _ in cases]
        plain = score_answers(given_texts, [rights(right) for _, right in cases])
        assert {name: found[name] for name in plain} == pytest.approx(plain)


@given(questions)
def test_the_best_limit_is_that_of_all(cases: list[Any]) -> None:
    limits = [-4.0, *sorted({doubt for (_, doubt), _ in cases})]
    found = [score_doubted_answers(*both(cases, limit)) for limit in limits]
    for name in ("f1", "exact_match"):
        highest = max(scores[name] for scores in found)
        assert all(s[f"best_{name}"] == pytest.approx(highest) for s in found)


@given(questions)
def test_the_search_is_that_of_the_official_script(cases: list[Any]) -> None:
    # which takes questions one by one, and counts an empty answer as none
    cases = [
        ((f"house {text}", doubt + number / 100), [f"red {text}" for text in right])
        for number, ((text, doubt), right) in enumerate(cases)
    ]
    total = best = sum(not right for _, right in cases)
    for (text, _), right in sorted(cases, key=lambda case: case[0][1]):
        gain = score_answers([text], [right])["f1"] if right else -1.0
        total += gain
        best = max(best, total)
    found = score_doubted_answers(*both(cases))["best_f1"]
    assert found == pytest.approx(best / len(cases), abs=1e-6)


def test_an_answer_that_is_only_an_article_is_none() -> None:
    scores = score_doubted_answers([("the", -1.0), ("", -1.0)], [["the", "Paris"], ["A"]])
    assert (scores["f1"], scores["exact_match"]) == (0.5, 0.5)


def test_doubts_that_are_none() -> None:
    with pytest.raises(ValueError, match=r"^question 0 must have a doubt that is a number, got"):
        score_doubted_answers([("x", math.nan)], [[]])
    for said in ([], [("x", 0.0)]):
        with pytest.raises(ValueError, match=r"^said and right must have one length above 0, got"):
            score_doubted_answers(said, [])
