"""A small model from scratch: what it reads, that it learns, and that its seed decides."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from jat_graph import JatConfig, PairGraph
from jat_graph.lab.studies.small_reader import (
    ReaderTraining,
    SmallReader,
    learning_curve,
)
from jat_graph.tasks import FarRecallTask, PartnersTask, RecallTask

TASK = PartnersTask(pairs=2, names=6, values=3, test_size=60)
SHORT = ReaderTraining(steps=5, every=2, batch_size=8)
PAIRS = JatConfig(PairGraph(threshold=1.0), heads=4)
STONES = JatConfig.stones()


def ids(task: RecallTask) -> list[torch.Tensor]:
    drawn = task.sequences("test")
    return [torch.from_numpy(column) for column in (drawn.first, drawn.second, drawn.value)]


@pytest.mark.parametrize("config", [None, PAIRS, STONES])
@pytest.mark.parametrize("layers", [1, 2])
def test_padding_and_the_order_of_tokens_change_nothing(
    config: JatConfig | None, layers: int
) -> None:
    torch.manual_seed(0)
    model = SmallReader(TASK, layers, config).double()
    columns = ids(TASK)
    logits = model(*columns)
    assert logits.shape == (60, 6, 3)
    order = torch.from_numpy(np.random.default_rng(0).permutation(6))
    moved = model(*(column[:, order] for column in columns))
    valid = columns[0] > 0
    torch.testing.assert_close(moved[valid[:, order]], logits[:, order][valid[:, order]])
    short = [column[:2, :3] for column in columns]  # the first is of one pair, the second of two
    assert not columns[0][0, 3:].any() and columns[0][1].all()
    torch.testing.assert_close(model(*(column[:1] for column in short))[0], logits[0, :3])


def test_first_and_second_name_are_alike_and_the_answer_is_not_read() -> None:
    torch.manual_seed(0)
    model = SmallReader(TASK, 1, None).double()
    first, second, value = ids(TASK)
    swap = second > 0
    other = model(torch.where(swap, second, first), torch.where(swap, first, second), value)
    torch.testing.assert_close(other, model(first, second, value))


def test_a_window_hides_what_is_far() -> None:
    task = FarRecallTask(told=2, names=4, filler=8, test_size=4)
    config = JatConfig(heads=4, hop_weights=(1.0,), pattern="window:3")
    torch.manual_seed(0)
    model = SmallReader(task, 1, config).double()
    first, second, value = ids(task)
    other = value.clone()
    other[:, :2] = value[:, :2] % task.values + 1
    asked = slice(10, 12)
    torch.testing.assert_close(
        model(first, second, other)[:, asked], model(first, second, value)[:, asked], rtol=0, atol=0
    )


def test_a_curve_is_tested_on_the_way_and_at_the_end() -> None:
    curve = list(learning_curve(TASK, training=SHORT))
    assert [step for step, _ in curve] == [2, 4, 5]
    for _, scores in curve:
        assert list(scores) == ["accuracy", "accuracy_1", "accuracy_2"]
        assert all(0 <= score <= 1 for score in scores.values())


@pytest.mark.parametrize("config", [None, PAIRS, STONES])
def test_the_seed_decides_and_leaves_torchs_alone(config: JatConfig | None) -> None:
    state = torch.get_rng_state()
    first = list(learning_curve(TASK, config, training=SHORT, seed=3))
    torch.rand(3)
    assert list(learning_curve(TASK, config, training=SHORT, seed=3)) == first
    assert list(learning_curve(TASK, config, training=SHORT, seed=4)) != first
    torch.set_rng_state(state)
    list(learning_curve(TASK, config, training=SHORT))
    assert torch.equal(torch.get_rng_state(), state)


def test_one_layer_finds_a_value_that_is_one_step_away() -> None:
    task = FarRecallTask(told=2, names=4, filler=2, filler_words=2, values=2, test_size=100)
    training = ReaderTraining(steps=80, every=80, learning_rate=3e-3)
    ((_, scores),) = learning_curve(task, training=training)
    assert scores["accuracy"] > 0.95 > task.chance(2)


def test_one_layer_with_stones_finds_a_value_that_is_two_steps_away() -> None:
    task = PartnersTask(pairs=3, names=12, values=4, test_size=300)
    training = ReaderTraining(steps=120, every=120, learning_rate=3e-3)
    ((_, plain),), ((_, stones),) = (
        learning_curve(task, config, training=training) for config in (None, STONES)
    )
    assert plain["accuracy_1"] > 0.98 and stones["accuracy_1"] > 0.98  # the only other value
    assert plain["accuracy_3"] < task.chance(3) + 0.1
    assert stones["accuracy_3"] > task.chance(3) + 0.3


@pytest.mark.parametrize(("config", "layers"), [(STONES, 2), (PAIRS, 0)])
def test_strengths_alone_have_a_rate_of_their_own(
    config: JatConfig, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[torch.optim.Optimizer] = []
    monkeypatch.setattr("torch.optim.lr_scheduler.LinearLR", lambda made, *_: seen.append(made))
    training = replace(SHORT, learning_rate=0.5, strength_lr=7.0)
    with pytest.raises(AttributeError):  # of the schedule that is none
        next(learning_curve(TASK, config, layers=2, training=training))
    *rest, strengths = seen[0].param_groups
    assert [group["lr"] for group in (*rest, strengths)] == [0.5, 0.5, 7.0]
    assert not any(group["weight_decay"] for group in (*rest, strengths))
    assert [tuple(one.shape) for one in strengths["params"]] == [(3, 1, 4)] * layers
    found = [tuple(one.shape) for group in (*rest, strengths) for one in group["params"]]
    model = SmallReader(TASK, 2, config)
    assert sorted(found) == sorted(tuple(one.shape) for one in model.parameters())


@pytest.mark.parametrize(("config", "matters"), [(PAIRS, False), (STONES, True)])
def test_the_rate_of_strengths_is_theirs_alone(config: JatConfig, matters: bool) -> None:
    slow, fast = (
        list(learning_curve(TASK, config, training=replace(SHORT, strength_lr=rate)))
        for rate in (1e-6, 1.0)
    )
    assert (slow != fast) == matters


@pytest.mark.parametrize("config", [None, STONES])
def test_what_is_none_adds_nothing_and_stones_begin_as_the_base(config: JatConfig | None) -> None:
    torch.manual_seed(0)
    model = SmallReader(TASK, 1, config)
    assert not model.names.weight[0].any() and not model.values.weight[0].any()
    torch.manual_seed(0)
    plain = SmallReader(TASK, 1, None)
    torch.testing.assert_close(model(*ids(TASK)), plain(*ids(TASK)), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"every": 0}, "every must be at least 1, got 0"),
        ({"batch_size": 1.5}, "batch_size must be an integer, got 1.5"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0, got 0.0"),
        ({"strength_lr": math.inf}, "strength_lr must be finite, got inf"),
    ],
)
def test_training_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReaderTraining(**settings)
