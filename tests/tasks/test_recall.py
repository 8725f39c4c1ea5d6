"""Partners and far recall: exact answers, no name twice, chance as counted by brute force."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.tasks import FarRecallTask, IdSequences, PartnersTask, RecallTask, get_task
from jat_graph.tasks.recall import share_of_commonest

SIZES = {"train_size": 7, "validation_size": 3, "test_size": 20}
SEEDS = st.integers(0, 2**31)


@st.composite
def partners(draw: st.DrawFn) -> PartnersTask:
    pairs = draw(st.integers(1, 6))
    names = draw(st.none() | st.integers(2 * pairs, 40))
    values = draw(st.integers(1, 9))
    return PartnersTask(pairs=pairs, names=names, values=values, seed=draw(SEEDS), **SIZES)


@st.composite
def far_recalls(draw: st.DrawFn) -> FarRecallTask:
    told = draw(st.integers(1, 6))
    counts = {name: draw(st.integers(1, 9)) for name in ("filler_words", "values")}
    names, filler = draw(st.integers(told, 12)), draw(st.integers(0, 9))
    return FarRecallTask(
        told=told, names=names, filler=filler, seed=draw(SEEDS), **(counts | SIZES)
    )


def rows(drawn: IdSequences) -> list[list[tuple[int, int, int, int]]]:
    """Return the tokens of each sequence, without padding."""
    columns = np.stack([drawn.first, drawn.second, drawn.value, drawn.answer], axis=-1)
    return [[tuple(token) for token in row if token[0]] for row in columns.tolist()]


# --- partners ------------------------------------------------------------------------------------


@given(task=partners())
def test_every_name_is_asked_for_the_value_of_the_one_that_shares_its_hub(
    task: PartnersTask,
) -> None:
    drawn = task.sequences("test")
    for tokens, size in zip(rows(drawn), drawn.size.tolist(), strict=True):
        assert 1 <= size <= task.pairs and len(tokens) == 3 * size
        carried = {first: value for first, second, value, _ in tokens if not second}
        asked = {first: answer for first, second, _, answer in tokens if not second}
        hubs = [token for token in tokens if token[1]]
        assert len(carried) == 2 * size and len(hubs) == size  # no name twice
        held = [name for first, second, _, _ in hubs for name in (first, second)]
        assert sorted(held) == sorted(carried)  # each name in one hub, once
        assert all(1 <= name <= task.num_names for name in held)
        assert all(1 <= value <= task.values for value in carried.values())
        for first, second, value, answer in hubs:
            assert value == answer == 0
            assert (asked[first], asked[second]) == (carried[second], carried[first])


@given(task=partners())
def test_every_size_is_there_as_often(task: PartnersTask) -> None:
    for split in task.splits:
        counts = Counter(task.sequences(split).size.tolist())
        assert set(counts) <= set(task.sizes) and sum(counts.values()) == SIZES[f"{split}_size"]
        assert max(counts.values()) - min(counts[size] for size in task.sizes) <= 1


def test_neither_order_nor_names_tell_the_partner() -> None:
    task = PartnersTask(pairs=2, names=4)
    places: Counter[int] = Counter()
    partner: Counter[tuple[int, int]] = Counter()
    for tokens in rows(task.draw(np.full(3000, 2), np.random.default_rng(0))):
        place = {first: index for index, (first, second, *_) in enumerate(tokens) if not second}
        first, second = next((first, second) for first, second, *_ in tokens if second)
        places[abs(place[first] - place[second])] += 1
        partner[min(first, second), max(first, second)] += 1
    assert len(partner) == 6 and max(partner.values()) < 1.2 * min(partner.values())
    # Two of six places at random: 5 neighbours, 4 two apart, and so on, of 15.
    shares = [places[gap] / places.total() for gap in range(1, 6)]
    assert shares == pytest.approx([n / 15 for n in (5, 4, 3, 2, 1)], abs=0.03)


# --- far recall ----------------------------------------------------------------------------------


@given(task=far_recalls())
def test_names_are_told_then_filler_comes_then_each_is_asked_once(task: FarRecallTask) -> None:
    drawn = task.sequences("test")
    assert not drawn.second.any() and set(drawn.size.tolist()) == {task.told}
    for tokens in rows(drawn):
        told, filler = tokens[: task.told], tokens[task.told : -task.told]
        carried = {first: value for first, _, value, _ in told}
        asked = {first: answer for first, _, _, answer in tokens[-task.told :]}
        assert carried == asked and len(carried) == task.told
        assert len(filler) == task.filler
        assert all(1 <= name <= task.names for name in carried)
        assert all(1 <= value <= task.values for value in carried.values())
        assert all(task.names < word <= task.num_names for word, *_ in filler)
        assert not any(answer for *_, answer in tokens[: -task.told])
        assert not any(value for _, _, value, _ in tokens[task.told :])


def test_names_are_asked_in_another_order_than_they_are_told() -> None:
    drawn = FarRecallTask(told=2, filler=0).draw(np.full(2000, 2), np.random.default_rng(0))
    same = (drawn.first[:, :2] == drawn.first[:, 2:]).all(1).mean()
    assert same == pytest.approx(0.5, abs=0.05)


# --- chance --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("drawn", "values"), [(1, 5), (3, 2), (4, 4), (5, 3), (7, 2), (6, 1)])
def test_the_commonest_value_is_counted(drawn: int, values: int) -> None:
    every = list(product(range(values), repeat=drawn))
    found = sum(max(Counter(one).values()) for one in every) / (drawn * len(every))
    assert share_of_commonest(drawn, values) == pytest.approx(found, abs=1e-12)


@pytest.mark.parametrize("task", [PartnersTask(values=4), FarRecallTask(values=3, told=4)])
def test_chance_is_what_guessing_the_commonest_comes_to(task: RecallTask) -> None:
    for size in task.sizes:
        drawn = task.draw(np.full(3000, size), np.random.default_rng(size))
        own = drawn.value if isinstance(task, PartnersTask) else 0 * drawn.value
        counts = (drawn.value[:, :, None] == np.arange(1, task.values + 1)).sum(1)  # [N, V]
        others = counts[:, None, :] - (own[:, :, None] == np.arange(1, task.values + 1))
        scores = task.measure(others.argmax(-1) + 1, drawn)
        assert scores["accuracy"] == scores[f"accuracy_{size}"]
        assert scores["accuracy"] == pytest.approx(task.chance(size), abs=0.02)


# --- measure -------------------------------------------------------------------------------------


@given(task=partners() | far_recalls(), seed=SEEDS)
def test_accuracy_is_the_share_of_right_answers(task: RecallTask, seed: int) -> None:
    asked = task.sequences("test")
    assert set(task.measure(asked.answer, asked).values()) == {1.0}
    assert set(task.measure(asked.answer + 1, asked).values()) == {0.0}
    said = np.random.default_rng(seed).integers(1, task.values, asked.first.shape, endpoint=True)
    scores, hits = task.measure(said, asked), {size: [0, 0] for size in task.sizes}
    for size, row, right in zip(asked.size, said, asked.answer, strict=True):
        for one, answer in zip(row, right, strict=True):
            hits[int(size)][0] += bool(answer) and one == answer
            hits[int(size)][1] += bool(answer)
    for size, (good, all_) in hits.items():
        assert scores[f"accuracy_{size}"] == pytest.approx(good / all_)
    good, all_ = map(sum, zip(*hits.values(), strict=True))
    assert scores["accuracy"] == pytest.approx(good / all_)


# --- the task ------------------------------------------------------------------------------------


@given(task=partners() | far_recalls())
def test_the_dataset_is_the_sequences_without_padding(task: RecallTask) -> None:
    splits = task.load(None, ["test"])
    drawn = task.sequences("test")
    for row, tokens, size in zip(splits["test"], rows(drawn), drawn.size, strict=True):
        columns = zip(row["first"], row["second"], row["value"], row["answer"], strict=True)
        assert list(columns) == tokens and row["size"] == size


@given(task=partners() | far_recalls(), bigger=st.integers(0, 30))
def test_the_seed_decides_and_splits_do_not_depend_on_others_sizes(
    task: RecallTask, bigger: int
) -> None:
    again = replace(task, train_size=1 + bigger)
    for name in ("first", "second", "value", "answer", "size"):
        assert (
            getattr(again.sequences("test"), name) == getattr(task.sequences("test"), name)
        ).all()


def test_splits_and_seeds_differ() -> None:
    task = PartnersTask(train_size=20, validation_size=20, test_size=20)
    other = PartnersTask(train_size=20, validation_size=20, test_size=20, seed=1)
    drawn = [one.sequences(split).value.tolist() for one in (task, other) for split in task.splits]
    assert all(one != another for i, one in enumerate(drawn) for another in drawn[:i])


def test_tasks_are_found_as_users_type_them() -> None:
    assert isinstance(get_task("partners"), PartnersTask)
    assert isinstance(get_task("far-recall"), FarRecallTask)


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (PartnersTask, {"pairs": 0}, "pairs must be at least 1, got 0"),
        (PartnersTask, {"pairs": 2.0}, "pairs must be an integer, got 2.0"),
        (PartnersTask, {"values": 0}, "values must be at least 1, got 0"),
        (PartnersTask, {"test_size": 0}, "test_size must be at least 1, got 0"),
        (
            PartnersTask,
            {"pairs": 5, "names": 9},
            "names must be at least 10, got 9",
        ),
        (FarRecallTask, {"told": 9, "names": 8}, "names must be at least 9, got 8"),
        (FarRecallTask, {"filler": -1}, "filler must be at least 0, got -1"),
        (FarRecallTask, {"filler_words": 0}, "filler_words must be at least 1, got 0"),
    ],
)
def test_settings_that_cannot_be(
    make: Callable[..., RecallTask], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make(**settings)


def test_there_is_no_other_split() -> None:
    with pytest.raises(ValueError, match="split of task partners must be one of train"):
        PartnersTask().sequences("dev")
