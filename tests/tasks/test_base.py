import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jat_graph.tasks import LanguageModelTask, QuestionTask, get_task


@dataclass(frozen=True, kw_only=True)
class Verse(LanguageModelTask):
    def load(self, data_dir: Path | None, splits: Sequence[str] | None = None) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Quiz(QuestionTask):
    def load(self, data_dir: Path | None, splits: Sequence[str] | None = None) -> dict[str, Any]:
        raise NotImplementedError


def test_all_splits_are_chosen_unless_some_are_named() -> None:
    task = get_task("mnli")
    assert task.chosen_splits(None) == task.splits
    assert task.chosen_splits(["validation_matched"]) == ("validation_matched",)


def test_an_unknown_split_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError) as caught:
        get_task("rte").chosen_splits(("train", "test"))
    assert str(caught.value) == "split of task rte must be one of train, validation, got 'test'"


def test_a_classification_is_scored_by_its_greatest_logit() -> None:
    logits = np.array([[2.0, 1.0], [0.0, 3.0], [5.0, -1.0], [-1.0, 0.5]], dtype=np.float32)
    scores = get_task("mrpc").compute_metrics(logits, np.array([0, 1, 1, 1]))
    assert list(scores) == ["accuracy", "f1"]
    assert scores["accuracy"] == 0.75
    assert scores["f1"] == pytest.approx(2 * 1.0 * (2 / 3) / (1.0 + 2 / 3))


def test_a_regression_is_scored_by_its_output() -> None:
    outputs = np.array([[0.1], [2.2], [3.9]], dtype=np.float32)
    scores = get_task("stsb").compute_metrics(outputs, np.array([0.0, 2.0, 5.0]))
    assert scores["pearson"] == pytest.approx(np.corrcoef(outputs[:, 0], [0, 2, 5])[0, 1])
    assert scores["spearman"] == pytest.approx(1.0)


def test_classes_are_the_better_the_greater_their_metric() -> None:
    assert get_task("mrpc").greater_is_better


# Probabilities 1/2, 1/4, 1/8, 1: the mean of their logarithms to base 2 is -6/4.
LOSSES = np.array([1, 2, 3, 0]) * math.log(2)


def test_a_language_model_is_scored_by_its_losses() -> None:
    verse = Verse(
        name="verse", splits=("train", "validation"), other_metrics=("bits_per_character",)
    )
    assert not verse.greater_is_better
    scores = verse.compute_metrics(LOSSES)
    assert list(scores) == ["perplexity", "bits_per_character"]
    assert scores == pytest.approx({"perplexity": 2**1.5, "bits_per_character": 1.5})
    scores = verse.compute_metrics(LOSSES, units=12)  # tokens of three characters
    assert scores == pytest.approx({"perplexity": 2**1.5, "bits_per_character": 0.5})


def test_a_model_of_ready_made_tokens_is_scored_by_bits_for_each() -> None:
    tune = Verse(
        name="tune",
        splits=("train", "validation"),
        primary_metric="bits_per_token",
        other_metrics=("perplexity",),
        vocabulary_size=8,
    )
    assert tune.compute_metrics(LOSSES) == pytest.approx(
        {"bits_per_token": 1.5, "perplexity": 2**1.5}
    )


def test_answers_are_scored_by_the_rules_of_squad() -> None:
    quiz = Quiz(name="quiz", splits=("train", "validation"))
    answers = {"a": ["the cat", "a dog"], "b": ["in the old house"]}
    # "Dog!" is a dog; of "old house, red" two of three words are right, and two of three found
    scores = quiz.compute_metrics({"a": "Dog!", "b": "old house, red"}, answers)
    assert list(scores) == ["f1", "exact_match"]
    assert scores == pytest.approx({"f1": (1 + 2 / 3) / 2, "exact_match": 0.5})
