"""Splits as token ids."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jat_graph.tasks import ClassificationTask, get_task
from jat_graph.training.data import dev_splits, drawn_rows, load_splits
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import Cut, draw
from tests.training.support import Options


def test_dev_sets(options: Options) -> None:
    assert dev_splits(get_task("cola"), options()) == ("validation",)
    assert len(dev_splits(get_task("mnli"), options())) == 2
    assert dev_splits(get_task("mnli"), options(held_out=0.1)) == ("held_out",)


def test_what_is_held_out_is_not_trained_on_and_the_same_for_all_seeds(options: Options) -> None:
    whole = load_splits(objective_for(get_task("cola"), options()), ("train",))["train"].rows
    splits = [
        load_splits(objective_for(get_task("cola"), chosen), ("train", "held_out"))
        for chosen in (options(held_out=0.25), options(held_out=0.25, seed=7))
    ]
    held, kept = (list(splits[0][name].rows["sentence"]) for name in ("held_out", "train"))
    assert len(held) == 12 and sorted(held + kept) == sorted(whole["sentence"])
    assert held != list(whole["sentence"])[:12]
    assert list(splits[1]["held_out"].rows["sentence"]) == held


def test_limits_are_drawn_from_both_sides(options: Options) -> None:
    chosen = options(held_out=0.25, max_train_samples=10, max_eval_samples=5)
    splits = load_splits(objective_for(get_task("cola"), chosen), ("train", "held_out"))
    assert {name: len(split.rows) for name, split in splits.items()} == {"train": 10, "held_out": 5}


@given(
    share=st.sampled_from([0.0, 0.25, 0.5]),
    train=st.one_of(st.none(), st.integers(1, 60)),
    dev=st.one_of(st.none(), st.integers(1, 60)),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_the_rows_of_a_run_are_those_that_are_encoded(
    options: Options, share: float, train: int | None, dev: int | None
) -> None:
    chosen = options(held_out=share, max_train_samples=train, max_eval_samples=dev)
    task = get_task("cola")
    names = ("train", *dev_splits(task, chosen))
    encoded = load_splits(objective_for(task, chosen), names)
    found = drawn_rows(chosen)
    assert list(found) == list(names)
    for name, (drawn, every) in found.items():
        assert list(drawn["sentence"]) == list(encoded[name].rows["sentence"])
        assert set(drawn["sentence"]) <= set(every["sentence"])
        assert len(drawn) == min(len(every), (train if name == "train" else dev) or len(every))
    assert len(found["train"][1]) == 48 * (1 - share)


@dataclass(frozen=True, kw_only=True)
class Answers(ClassificationTask):
    """Questions of one to four answers each."""

    def load(self, data_dir: Path | None, splits: Sequence[str] | None = None) -> Any:
        questions = [question for question in range(20) for _ in range(question % 4 + 1)]
        rows = {"text": ["a book"] * len(questions), "label": [0] * len(questions)}
        return {"train": Dataset.from_dict({**rows, "question": questions})}


@given(share=st.floats(0.05, 0.85))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_answers_to_one_question_stay_together(options: Options, share: float) -> None:
    task = Answers(
        name="answers",
        primary_metric="accuracy",
        splits=("train", "validation"),
        text_columns=("text",),
        labels=("no", "yes"),
        group="question",
    )
    objective = objective_for(task, options(held_out=share))
    splits = load_splits(objective, ("train", "held_out"))
    held, kept = (list(splits[name].rows["question"]) for name in ("held_out", "train"))
    assert not set(held) & set(kept) and len(held + kept) == 50
    assert round(share * 50) <= len(held) < round(share * 50) + 4


@pytest.mark.parametrize(("name", "column"), [("multirc", "paragraph"), ("squad", "context")])
def test_rows_about_one_text_stay_together(
    options: Options, tmp_path: Path, name: str, column: str
) -> None:
    lines, paragraphs = [], []
    for number in range(8):
        text = f"a book costs {number} more"
        names = [f"{number}-{question}" for question in range(3)]
        answers = [{"text": "less", "label": 0}]
        asked = [{"question": q, "idx": i, "answers": answers} for i, q in enumerate(names)]
        lines.append(json.dumps({"idx": number, "passage": {"text": text, "questions": asked}}))
        places = [{"text": "book", "answer_start": 2}]
        entries = [{"id": q, "question": q, "answers": places} for q in names]
        paragraphs.append({"context": text, "qas": entries})
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    content = {"data": [{"title": "x", "paragraphs": paragraphs}]}
    (tmp_path / "train-v1.1.json").write_text(json.dumps(content))
    chosen = options(task=name, data_dir=tmp_path, held_out=0.25, max_length=32, stride=2)
    splits = load_splits(objective_for(get_task(name), chosen), ("train", "held_out"))
    held, kept = (list(splits[part].rows[column]) for part in ("held_out", "train"))
    assert (len(held), len(kept)) == (6, 18) and set(held).isdisjoint(kept)


@pytest.mark.parametrize("share", [0.01, 0.99])
def test_a_share_that_leaves_one_side_empty_is_refused(options: Options, share: float) -> None:
    objective = objective_for(get_task("cola"), options(held_out=share))
    words = f"must leave some of the 48 rows of task cola on both sides, got {share}"
    with pytest.raises(ValueError, match=words):
        load_splits(objective, ("train", "held_out"))


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
