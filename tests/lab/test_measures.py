"""Shortcuts against the measures that they stand for, on resamples."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jat_graph.lab.measures import Called, Measure, Sums, resample, scorer
from jat_graph.tasks import get_task
from jat_graph.tasks.stepping_stones import SteppingStonesTask

CLASSES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=12)
THREE = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12)
NUMBERS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)
UNITS = st.lists(CLASSES, min_size=1, max_size=6)
SPAN = st.sampled_from([["person", 0, 1], ["person", 1, 2], ["group", 0, 1]])
SPANS = st.lists(
    st.tuples(*[st.lists(SPAN, unique_by=str, max_size=3)] * 2), min_size=1, max_size=6
)
WORDS = st.sampled_from(["a book", "Book!", "the pencil", "red pencil", ""])
TEXTS = st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=2)), min_size=1, max_size=6)


def check(measure: Measure, metrics: tuple[str, ...], said: list[Any], right: list[Any]) -> None:
    """Compare a scorer with the measure, called on the resampled examples themselves."""
    counts = resample(np.random.default_rng(1), len(right), 4)
    for metric in metrics:
        found = scorer(measure, metric, said, right)
        assert isinstance(found, Sums), metric
        for count, value in zip(counts, found.scores(counts), strict=True):
            places = np.repeat(np.arange(len(right)), count)
            truth = measure([said[i] for i in places], [right[i] for i in places])[metric]
            assert value == pytest.approx(truth, rel=1e-6, abs=1e-6, nan_ok=True), metric


@settings(max_examples=10, deadline=None)
@given(CLASSES)
def test_two_classes(pairs: list[tuple[int, int]]) -> None:
    said, right = map(list, zip(*pairs, strict=True))
    check(get_task("mrpc").measure, ("accuracy", "f1"), said, right)
    check(get_task("cola").measure, ("matthews",), said, right)


@settings(max_examples=10, deadline=None)
@given(THREE)
def test_three_classes(pairs: list[tuple[int, int]]) -> None:
    check(get_task("cb").measure, ("accuracy", "macro_f1"), *map(list, zip(*pairs, strict=True)))


@settings(max_examples=10, deadline=None)
@given(NUMBERS)
def test_correlation(pairs: list[tuple[int, int]]) -> None:
    said, right = zip(*pairs, strict=True)
    check(get_task("stsb").measure, ("pearson",), [0.1 + one / 3 for one in said], list(right))


@settings(max_examples=10, deadline=None)
@given(UNITS)
def test_units_of_answers(units: list[list[tuple[int, int]]]) -> None:
    said = [[one for one, _ in unit] for unit in units]
    check(
        get_task("multirc").measure,
        ("f1", "exact_match"),
        said,
        [[right for _, right in unit] for unit in units],
    )


@settings(max_examples=10, deadline=None)
@given(SPANS)
def test_spans(pairs: list[tuple[list[Any], list[Any]]]) -> None:
    check(
        get_task("wnut17").measure,
        ("f1", "precision", "recall"),
        *map(list, zip(*pairs, strict=True)),
    )


@settings(max_examples=10, deadline=None)
@given(TEXTS)
def test_answers_in_texts(pairs: list[tuple[str, list[str]]]) -> None:
    check(get_task("squad").measure, ("f1", "exact_match"), *map(list, zip(*pairs, strict=True)))


@settings(max_examples=10, deadline=None)
@given(THREE)
def test_accuracy_by_steps(pairs: list[tuple[int, int]]) -> None:
    said, label = zip(*pairs, strict=True)
    right = [[one, 1 + place % 2] for place, one in enumerate(label)]
    check(SteppingStonesTask().measure, ("accuracy", "accuracy_1", "accuracy_2"), list(said), right)


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1])
def test_outputs_that_are_all_the_same_are_no_correlation(value: float) -> None:
    said, right = [value] * 30, list(range(30))
    found = scorer(get_task("stsb").measure, "pearson", said, right)
    assert found.scores(resample(np.random.default_rng(0), 30, 50)).tolist() == [0.0] * 50


def test_a_shortcut_is_used_only_where_it_gives_the_measures_numbers() -> None:
    def other(said: Any, right: Any) -> dict[str, float]:
        hits = float(np.mean(np.asarray(said) == np.asarray(right)))
        return {"accuracy": hits**2}

    found = scorer(other, "accuracy", [0, 1, 1, 0], [0, 1, 0, 1])
    assert isinstance(found, Called)
    assert found.scores(np.array([[1, 1, 1, 1], [4, 0, 0, 0]])).tolist() == [0.25, 1.0]


def test_ranks_are_no_sums() -> None:
    said, right = [0.3, 0.1, 0.7, 0.9], [1.0, 2.0, 3.0, 5.0]
    assert isinstance(scorer(get_task("stsb").measure, "spearman", said, right), Called)


def test_a_metric_that_the_measure_lacks_is_undefined() -> None:
    found = scorer(get_task("rte").measure, "f1", [0, 1], [0, 1])
    assert np.isnan(found.scores(np.ones((2, 2), np.intp))).all()


def test_resamples_are_as_large_as_the_set() -> None:
    counts = resample(np.random.default_rng(0), 7, 5)
    assert counts.shape == (5, 7)
    assert counts.sum(axis=1).tolist() == [7] * 5
