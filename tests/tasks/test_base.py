import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset

from jat_graph.tasks import ChoiceTask, ClassificationTask, QuestionTask, get_task


@dataclass(frozen=True, kw_only=True)
class Quiz(QuestionTask):
    def load(self, data_dir: Path | None, splits: Sequence[str] | None = None) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Exam(ClassificationTask):
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


def test_answers_are_scored_by_the_rules_of_squad() -> None:
    quiz = Quiz(name="quiz", splits=("train", "validation"))
    right = [["the cat", "a dog"], ["in the old house"]]
    # "Dog!" is a dog; of "old house, red" two of three words are right, and two of three found
    scores = quiz.measure(["Dog!", "old house, red"], right)
    assert list(scores) == ["f1", "exact_match"]
    assert scores == pytest.approx({"f1": (1 + 2 / 3) / 2, "exact_match": 0.5})
    assert quiz.measure(["Dog!"], right[:1]) == {"f1": 1.0, "exact_match": 1.0}


# --- said beside right ---------------------------------------------------------------------------

EXAM = Exam(
    name="exam",
    splits=("train", "validation"),
    text_columns=("text",),
    labels=("no", "yes"),
    group="question",
    primary_metric="f1",
    other_metrics=("exact_match",),
)


def test_a_row_is_an_example_unless_a_task_has_groups() -> None:
    rows = Dataset.from_dict({"label": [1, 0, 1], "question": ["a", "b", "a"]})
    assert get_task("mrpc").gather([1, 1, 0], rows) == ([1, 1, 0], [1, 0, 1])
    assert EXAM.gather([1, 1, 0], rows) == ([[1, 0], [1]], [[1, 1], [0]])


def test_what_was_said_is_gathered_in_types_of_json() -> None:
    rows = Dataset.from_dict({"label": [1, 0]})
    labels = np.array(rows["label"])
    said = get_task("mrpc").decide(np.array([[0.0, 1.0], [1.0, 0.0]]), labels)
    gathered = get_task("mrpc").gather(said.tolist(), rows)
    assert json.loads(json.dumps(gathered)) == [[1, 0], [1, 0]]


def test_any_selection_of_examples_is_measured() -> None:
    said, right = [[1, 0], [1], [0, 0]], [[1, 1], [1], [0, 0]]
    assert EXAM.measure(said, right) == pytest.approx({"f1": 0.8, "exact_match": 2 / 3})
    assert EXAM.measure(said[:1] * 2, right[:1] * 2) == pytest.approx(
        {"f1": 2 / 3, "exact_match": 0.0}
    )
    assert get_task("mrpc").measure([1, 1, 0], [1, 0, 0]) == pytest.approx(
        {"accuracy": 2 / 3, "f1": 2 / 3}
    )


@pytest.mark.parametrize("task", [EXAM, get_task("mrpc")], ids=lambda task: task.name)
def test_no_examples_are_refused(task: ClassificationTask) -> None:
    with pytest.raises(ValueError, match=r"^said and labels must have one length above 0, got 0 a"):
        task.measure([], [])


def test_groups_cannot_be_told_from_labels_alone() -> None:
    with pytest.raises(ValueError, match=r"^task exam is scored by question: use decide, gather"):
        EXAM.compute_metrics(np.zeros((2, 2)), np.zeros(2, dtype=int))


def test_a_choice_is_scored_by_its_greatest_logit() -> None:
    copa = get_task("copa")
    assert isinstance(copa, ChoiceTask) and copa.num_classes == 2
    logits = np.array([[2.0, 1.0], [0.0, 3.0], [5.0, -1.0]])
    assert copa.compute_metrics(logits, np.array([0, 0, 0])) == {"accuracy": 2 / 3}
    with pytest.raises(ValueError, match=r"must have shape \[3, 2\], got \[3, 3\]"):
        copa.compute_metrics(np.zeros((3, 3)), np.zeros(3, dtype=int))
