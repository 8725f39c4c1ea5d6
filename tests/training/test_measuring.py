"""Scores of trained folders; thresholds on a task's own texts."""

import json
from pathlib import Path

import pytest

from jat_graph.config import JatConfig
from jat_graph.hf import TripletConfig
from jat_graph.training import calibrate_on_task, evaluate
from tests.training.support import Options


def test_an_untrained_model_is_refused(options: Options) -> None:
    with pytest.raises(ValueError, match="must be a trained classifier"):
        evaluate(options().model, "cola", options().data_dir, device="cpu", progress=False)


def test_an_unknown_task_is_refused(options: Options) -> None:
    with pytest.raises(ValueError, match="colour"):
        evaluate(options().model, "colour", progress=False)


def test_the_table_covers_the_jump_heads_and_is_always_the_same(options: Options) -> None:
    chosen, config = options(batch_size=8), JatConfig(heads=2)
    found = calibrate_on_task(chosen, config, density=0.3, batches=3)
    assert isinstance(found.threshold, tuple)
    assert [len(row) for row in found.threshold] == [2, 2]
    assert all(0 < value < float("inf") for row in found.threshold for value in row)
    other_seed = options(batch_size=8, seed=5)
    assert calibrate_on_task(other_seed, config, density=0.3, batches=3) == found


def test_triplet_heads_may_stand_beside(options: Options) -> None:
    chosen, config = options(batch_size=8), JatConfig(heads=1)
    alone = calibrate_on_task(chosen, config, density=0.3, batches=3)
    beside = calibrate_on_task(chosen, config, 0.3, batches=3, beside=TripletConfig(pairs="sum"))
    assert isinstance(alone.graph.threshold, tuple) and isinstance(beside.graph.threshold, tuple)
    assert beside.graph.threshold[0] == alone.graph.threshold[0]
    assert beside.graph.threshold[1] != alone.graph.threshold[1]


def test_no_batches_raise(options: Options) -> None:
    with pytest.raises(ValueError, match="batches must be a positive integer, got 0"):
        calibrate_on_task(options(), batches=0)


def test_long_texts_are_measured_with_their_pattern(options: Options, long_dir: str) -> None:
    pattern = JatConfig(pattern="window:16+global:1", heads=2, layers=(0,))
    chosen = options(data_dir=long_dir, max_length=80, batch_size=8, max_train_samples=16)
    measured = calibrate_on_task(chosen, pattern, 0.2, batches=4)
    assert measured.pattern == pattern.pattern
    assert isinstance(measured.threshold, tuple)


def test_tags_and_choices_are_measured_without_being_told(options: Options, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n\n".join(["the O\nbook B-MISC\ncosts O\nmore O"] * 16))
    row = {"premise": "the book costs more", "choice1": "more", "choice2": "not less than a pencil"}
    row |= {"question": "cause", "label": 0}
    lines = [json.dumps(row | {"idx": number}) for number in range(16)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    config = JatConfig(heads=2)
    for task in ("conll2003", "copa"):
        chosen = options(task=task, data_dir=str(tmp_path), batch_size=8)
        found = calibrate_on_task(chosen, config, density=0.3, batches=2)
        assert isinstance(found.threshold, tuple), task
