"""What a run will take is said before it begins, and nothing of the run is changed by that."""

import logging
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jat_graph.config import JatConfig
from jat_graph.tasks import get_task
from jat_graph.training import TrainingOptions, train
from jat_graph.training.data import TRAIN, length_of
from jat_graph.training.estimate import (
    Cost,
    Pace,
    cost_of,
    describe_bytes,
    describe_time,
    foresee,
    measure_pace,
    padded_tokens,
    steps_of,
    time_step,
)
from jat_graph.training.memory import missing_peaks
from jat_graph.training.objectives import objective_for
from jat_graph.training.processes import Processes
from jat_graph.training.runner import _prepare
from jat_graph.training.trainer import TaskTrainer
from tests.training.support import JUMP, Options, same_weights

STONES = JatConfig.stones(layers=(1,), heads=2)


def prepared(options: TrainingOptions, heads: JatConfig | None, folder: Path) -> Any:
    objective = objective_for(get_task(options.task), options)
    return _prepare(objective, heads, Processes(), folder, False)


def state(trainer: TaskTrainer) -> Iterator[bytes]:
    """Everything that a training begins with, as bytes."""
    yield from (tensor.numpy().tobytes() for tensor in trainer.model.state_dict().values())
    yield from (buffer.numpy().tobytes() for buffer in trainer.model.buffers())
    yield torch.get_rng_state().numpy().tobytes()
    yield repr(random.getstate()).encode()
    yield np.random.get_state()[1].tobytes()  # type: ignore[union-attr]
    yield repr([module.training for module in trainer.model.modules()]).encode()
    yield repr([weight.grad for weight in trainer.model.parameters()]).encode()
    yield repr((trainer.optimizer, trainer.lr_scheduler, vars(trainer.state))).encode()


@pytest.mark.parametrize("heads", [None, JUMP, STONES], ids=["base", "pairs", "stones"])
def test_a_timed_step_changes_nothing(
    options: Options, heads: JatConfig | None, tmp_path: Path
) -> None:
    trainer, splits = prepared(options(mixed_precision="bf16"), heads, tmp_path)
    before = list(state(trainer))
    cost = foresee(trainer, options(), splits)
    assert list(state(trainer)) == before
    assert cost.seconds > 0


def test_a_run_that_was_estimated_is_the_same(
    options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = (options(output_dir=str(tmp_path / name)) for name in ("one", "other"))
    train(one, JUMP, progress=False)
    caplog.clear()
    with caplog.at_level(logging.INFO, "jat_graph"):
        train(other, JUMP, progress=False, estimate=True)
    assert same_weights(one.output_dir, other.output_dir)
    said = [record.getMessage() for record in caplog.records]
    (line,) = [text for text in said if "timed step" in text]
    assert line.startswith("about ") and "9 steps" in line
    assert said.index(line) < said.index(next(text for text in said if text.startswith("step ")))


def test_only_what_is_left_counts(
    options: Options, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer, splits = prepared(options(), None, tmp_path)
    with caplog.at_level(logging.INFO, "jat_graph"):
        foresee(trainer, options(), splits, done=7)
    assert "for 2 steps" in caplog.text
    pace = Pace(token=1.0, update=10.0, batch=100.0, memory=5)
    few = options(select_best=False)
    whole, rest, none = (cost_of(pace, few, 9, [30.0], done) for done in (0, 6, 9))
    assert (whole.seconds, rest.seconds, none.seconds) == (9 * 110 + 10, 3 * 110 + 10, 10)
    assert whole.memory == 5
    chosen = options(select_best=True)  # by scores of the first dev set, after each of three epochs
    assert cost_of(pace, chosen, 9, [30.0, 60.0]).seconds == 9 * 110 + 30 + 3 * 10
    assert cost_of(pace, chosen, 9, [30.0, 60.0], 6).seconds == 3 * 110 + 30 + 10


def test_steps_are_those_of_the_trainer(options: Options, tmp_path: Path) -> None:
    for changes in (
        {},
        {"gradient_accumulation": 2},
        {"trainer": {"max_steps": 4}},
        {"batch_size": 20},
    ):
        asked = options(output_dir=str(tmp_path / "run"), **changes)
        assert steps_of(asked, 48) == train(asked, progress=False).steps
        for path in sorted((tmp_path / "run").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    assert steps_of(options(), 48, processes=3) == 3


def test_tokens_of_batches_are_counted_with_their_padding(options: Options, tmp_path: Path) -> None:
    _, splits = prepared(options(), None, tmp_path)
    rows = splits[TRAIN].features
    lengths = [length_of(ids) for ids in rows["input_ids"]]
    assert padded_tokens(rows, 1) == sum(lengths)
    assert padded_tokens(rows, len(rows)) == len(rows) * max(lengths)


@pytest.mark.skipif(missing_peaks("cpu") != "", reason="only Linux resets peaks")
def test_memory_holds_the_state_of_the_optimizer(options: Options, tmp_path: Path) -> None:
    trainer, _ = prepared(options(), None, tmp_path)
    weights = sum(weight.nbytes for weight in trainer.model.parameters())
    whole = measure_pace(trainer)
    assert whole.memory is not None and whole.memory > 4 * weights
    assert measure_pace(trainer, patience=0.0).memory is None  # not all of a batch was there


def test_long_steps_are_known_by_fewer_rows() -> None:
    taken: list[int] = []

    def take(rows: int) -> None:
        time.sleep(0.002)  # whatever the rows, so that no noise looks like compiling
        taken.append(rows)

    assert time_step(take, 64).whole
    assert taken == [1, 1, 8, 64, 64, 64]
    taken.clear()
    short = time_step(take, 64, patience=0.0)
    assert not short.whole and short.seconds > 0
    assert taken == [1, 1, 8]
    taken.clear()
    time_step(take, 1)
    assert set(taken) == {1}


def test_what_is_compiled_for_some_rows_is_not_taken_for_the_pace() -> None:
    seen: set[int] = set()

    def take(rows: int) -> None:
        time.sleep(0.001 * rows + (0.3 if rows not in seen else 0.0))
        seen.add(rows)

    step = time_step(take, 800, patience=0.5)
    assert not step.whole and step.seconds < 2.0
    assert seen == {1, 100}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1, "1 s"), (40, "40 s"), (720, "12 min"), (12000, "3 h 20 min"), (3600, "60 min")],
)
def test_times_are_told_in_words(seconds: float, text: str) -> None:
    assert describe_time(seconds) == text


def test_sizes_are_told_in_words() -> None:
    assert describe_bytes(3 * 2**20 - 1) == "3 MiB"
    assert describe_bytes(3 * 2**29) == "1.5 GiB"
    assert str(Cost(720, 3 * 2**29)) == "about 12 min and 1.5 GiB of memory"
    assert str(Cost(720)) == "about 12 min"
