"""Splits as token ids."""

import logging

import pytest
from datasets import Dataset

from jat_graph.tasks import get_task
from jat_graph.training.data import dev_splits, load_splits
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import Cut, draw
from tests.training.support import Options


def test_dev_sets() -> None:
    assert dev_splits(get_task("cola")) == ("validation",)
    assert len(dev_splits(get_task("mnli"))) == 2


def test_subsets_are_random_and_always_the_same() -> None:
    rows = Dataset.from_dict({"x": list(range(100))})
    first, again = draw(rows, 10)["x"], draw(rows, 10)["x"]
    assert list(first) == list(again) != list(range(10))
    assert draw(rows, None) is draw(rows, 100) is rows


def test_only_the_splits_asked_for(options: Options) -> None:
    objective = objective_for(get_task("cola"), options(max_length=5, max_eval_samples=7))
    splits = load_splits(objective, ("validation",))
    assert list(splits) == ["validation"]
    features = splits["validation"].features
    assert len(features) == len(splits["validation"].rows) == 7
    assert max(map(len, features["input_ids"])) == 5


def test_a_limit_that_special_tokens_fill_is_refused(options: Options) -> None:
    objective = objective_for(get_task("cola"), options(max_length=2))
    words = "max_length must be at least 3 for task cola and 2 special tokens, got 2"
    with pytest.raises(ValueError, match=words):
        load_splits(objective, ("validation",))


def test_one_warning_says_what_the_limit_cuts(
    options: Options, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        whole = load_splits(objective_for(get_task("cola"), options()), ("train", "validation"))
    assert not caplog.records
    lengths = [len(ids) for ids in whole["train"].features["input_ids"]]
    with caplog.at_level(logging.WARNING):
        objective = objective_for(get_task("cola"), options(max_length=7))
        cut = load_splits(objective, ("train", "validation"))["train"]
    kept = sum(len(ids) for ids in cut.features["input_ids"])
    over = sum(length > 7 for length in lengths)
    assert cut.cut == Cut(over, len(lengths), sum(lengths) - kept, sum(lengths)) and over > 0
    [record] = caplog.records
    assert record.getMessage().startswith(f"max_length=7 cuts texts: of train, {cut.cut}; of val")
    assert f"({1 - kept / sum(lengths):.1%})" in record.getMessage()
