import numpy as np
import pytest

from jat_graph.tasks import get_task


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
