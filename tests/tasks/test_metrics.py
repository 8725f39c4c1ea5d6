import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from jat_graph.tasks.metrics import (
    MEASURES,
    accuracy,
    decide,
    f1,
    macro_f1,
    matthews,
    pearson,
    score,
    score_losses,
    spearman,
)

PAIRS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=40)
NUMBERS = st.integers(-50, 50).map(lambda n: n / 8)
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=40)


def columns(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    first, second = zip(*pairs, strict=True)
    return np.array(first), np.array(second)


# --- values --------------------------------------------------------------------------------------


def test_hand_computed_values() -> None:
    predicted, labels = np.array([1, 1, 1, 0, 0, 0]), np.array([1, 1, 0, 1, 0, 0])
    # 2 true positives, 1 false positive, 1 false negative, 2 true negatives
    assert accuracy(predicted, labels) == pytest.approx(4 / 6)
    assert f1(predicted, labels) == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert matthews(predicted, labels) == pytest.approx((2 * 2 - 1 * 1) / math.sqrt(3**4))
    outputs, targets = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0])
    assert pearson(outputs, targets) == pytest.approx(1 / math.sqrt(42 / 9 * 2))
    assert spearman(outputs, targets) == pytest.approx(0.5)


def test_each_class_weighs_the_same_in_macro_f1() -> None:
    predicted, labels = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 0, 0, 1, 2, 2])
    # class 0: precision 1, recall 2/3; class 1: nothing right; class 2: precision 2/3, recall 1
    assert macro_f1(predicted, labels) == pytest.approx((0.8 + 0 + 0.8) / 3)
    assert macro_f1(np.array([4, 4]), np.array([4, 4])) == 1  # the other classes are nowhere


def test_hand_computed_losses() -> None:
    losses = np.array([0.0, 2.0, 4.0, 6.0], dtype=np.float32)
    assert score_losses(losses, None, "token") == pytest.approx(
        {"perplexity": math.exp(3), "bits_per_token": 3 / math.log(2)}
    )
    assert score_losses(losses, 8, "character") == pytest.approx(
        {"perplexity": math.exp(3), "bits_per_character": 1.5 / math.log(2)}
    )


def test_sums_of_many_small_losses_are_exact() -> None:
    losses = np.full(3_000_000, 0.1, dtype=np.float32)
    assert score_losses(losses, None, "token")["perplexity"] == pytest.approx(
        math.exp(np.float32(0.1)), rel=1e-12
    )


def test_a_hopeless_model_is_infinitely_perplexed() -> None:
    assert score_losses(np.array([2000.0]), None, "token")["perplexity"] == math.inf
    assert score_losses(np.array([math.inf]), None, "token")["bits_per_token"] == math.inf


@pytest.mark.parametrize(
    ("losses", "units", "message"),
    [
        (np.zeros(0), None, "losses must have shape [N] with N > 0, got [0]"),
        (np.zeros((2, 3)), None, "losses must have shape [N] with N > 0, got [2, 3]"),
        (np.array([1.0, -0.5]), None, "losses must be 0 or more, got -0.5"),
        (np.array([1.0, math.nan]), None, "losses must be 0 or more, got nan"),
        (np.ones(2), 0, "units must be 1 or more, got 0"),
    ],
)
def test_losses_that_cannot_be_scored(losses: np.ndarray, units: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        score_losses(losses, units, "token")


@given(PAIRS)
def test_classifications_are_scored_as_by_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    predicted, labels = columns(pairs)
    assert accuracy(predicted, labels) == pytest.approx(
        sklearn_metrics.accuracy_score(labels, predicted)
    )
    assert f1(predicted, labels) == pytest.approx(
        sklearn_metrics.f1_score(labels, predicted, zero_division=0)
    )
    assume(len(set(labels.tolist())) == 2)
    assert matthews(predicted, labels) == pytest.approx(
        sklearn_metrics.matthews_corrcoef(labels, predicted)
    )


@given(POINTS)
def test_correlations_are_those_of_scipy(points: list[tuple[float, float]]) -> None:
    outputs, targets = columns(points)
    assume(np.ptp(outputs) > 0 and np.ptp(targets) > 0)
    assert pearson(outputs, targets) == pytest.approx(stats.pearsonr(outputs, targets)[0])
    assert spearman(outputs, targets) == pytest.approx(stats.spearmanr(outputs, targets)[0])


def test_the_greatest_logit_is_said_and_a_regression_says_its_output() -> None:
    assert decide(np.array([[2.0, 1.0], [0.0, 3.0]]), np.array([1, 1]), 2).tolist() == [0, 1]
    close = np.array([[1.0], [1.0 + 2**-20]], dtype=np.float32)
    said = decide(close, np.array([0.0, 5.0]), None)
    assert said.dtype == np.float64
    assert said.tolist() == [1.0, 1.0 + 2**-20]


# --- what is constant ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["matthews", "pearson", "spearman"])
def test_a_model_that_always_says_the_same_gets_nought(name: str) -> None:
    assert MEASURES[name](np.array([1, 1, 1]), np.array([0, 1, 1])) == 0.0


@pytest.mark.parametrize("name", ["matthews", "pearson", "spearman"])
@pytest.mark.parametrize("predicted", [[0, 1, 1], [1, 1, 1], [0, 0, 0]])
def test_constant_labels_leave_a_correlation_undefined(name: str, predicted: list[int]) -> None:
    assert math.isnan(MEASURES[name](np.array(predicted), np.array([1, 1, 1])))


def test_nearly_constant_outputs_are_no_warning() -> None:
    outputs = np.array([1.0, 1.0, 1.0 + 1e-15])
    assert -1 <= pearson(outputs, np.array([0.0, 1.0, 2.0])) <= 1


def test_f1_without_any_positive_is_nought() -> None:
    assert f1(np.array([0, 0]), np.array([0, 0])) == 0.0
    assert f1(np.array([0, 0]), np.array([1, 1])) == 0.0


def test_one_example_can_be_scored() -> None:
    labels = np.array([1])
    scores = score(tuple(MEASURES), decide(np.array([[0.0, 1.0]]), labels, 2), labels)
    assert scores["accuracy"] == scores["f1"] == 1.0
    assert math.isnan(scores["matthews"])


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("predictions", "labels", "classes", "message"),
    [
        ([[0.0, math.nan], [0.0, 1.0]], [0, 1], 2, "finite, got [0.0, nan] for example 0"),
        ([[0.0, 1.0], [0.0, math.inf]], [0, 1], 2, "finite, got [0.0, inf] for example 1"),
        ([0.5, math.nan], [0.0, 1.0], None, "finite, got [nan] for example 1"),
        ([[0.0, 1.0, 2.0]], [0], 2, "shape [1, 2], got [1, 3]"),
        ([[0.0, 1.0]], [0, 1], 2, "shape [2, 2], got [1, 2]"),
        ([[0.0, 1.0]], [0.5], None, "shape [1] or [1, 1], got [1, 2]"),
        ([[0.0, 1.0]], [2], 2, "labels must be class numbers from 0 to 1, got 2"),
        ([[0.0, 1.0]], [-100], 2, "labels must be class numbers from 0 to 1, got -100"),
        ([[0.0, 1.0]], [[0]], 2, "labels must have shape [N] with N > 0, got [1, 1]"),
        ([0.5], [math.nan], None, "labels must be finite"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    predictions: Any, labels: Any, classes: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        decide(np.array(predictions), np.array(labels), classes)
    assert "\n" not in str(caught.value)


def test_no_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="N > 0"):
        decide(np.zeros((0, 2)), np.zeros(0, dtype=int), 2)
    message = r"^said and labels must have one length above 0, got 0 and 0$"
    with pytest.raises(ValueError, match=message):
        score(("accuracy",), np.zeros(0), np.zeros(0))


def test_a_label_for_each_that_was_said() -> None:
    with pytest.raises(ValueError, match="one length above 0, got 2 and 1"):
        score(("accuracy",), np.array([1, 1]), np.array([1]))
