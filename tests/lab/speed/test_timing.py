"""Timing in turns, on a clock that the steps move themselves."""

import pytest
import torch

from jat_graph.lab.speed import timing
from jat_graph.lab.speed.timing import time_in_turns

CPU = torch.device("cpu")


class Clock:
    """A clock that moves only when a step says so, and a diary of the steps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.diary: list[str] = []

    def step(self, name: str, *seconds: float):
        """Return a step that takes so many seconds, the last number for all later calls."""
        left = list(seconds)

        def run() -> None:
            self.diary.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    return clock


def test_the_sides_take_turns_after_a_warm_up_of_each(clock: Clock) -> None:
    ours, theirs = clock.step("ours", 2.0), clock.step("theirs", 4.0)
    found = time_in_turns([ours], [theirs], device=CPU, repeats=3)
    assert clock.diary == ["ours", "theirs"] + ["ours", "theirs"] * 3
    assert (found.ours.median, found.theirs.median, found.ratio.median) == (2.0, 4.0, 0.5)
    assert found.ratio.samples == 3


def test_the_ratio_is_taken_pair_by_pair(clock: Clock) -> None:
    # Both sides are hit by the same slow spell: times spread, their ratio does not.
    ours = clock.step("ours", 1.0, 1.0, 2.0, 8.0, 2.0)
    theirs = clock.step("theirs", 1.0, 2.0, 4.0, 16.0, 4.0)
    found = time_in_turns([ours], [theirs], device=CPU, repeats=3)
    assert found.ratio.low == found.ratio.high == 0.5
    assert found.ours.high > found.ours.low


def test_a_side_is_the_sum_of_its_steps(clock: Clock) -> None:
    steps = [clock.step("rank", 3.0), clock.step("multiply", 1.0)]
    found = time_in_turns(steps, [clock.step("theirs", 2.0)], device=CPU, repeats=1)
    assert [step.median for step in found.steps] == [3.0, 1.0]
    assert found.ours.median == 4.0
    assert found.ratio.median == 2.0


def test_fast_sides_are_repeated_within_a_sample(clock: Clock) -> None:
    fast = clock.step("fast", timing.SAMPLE_SECONDS / 10)
    found = time_in_turns([fast], [clock.step("slow", 2.0)], device=CPU, repeats=1)
    assert clock.diary[-11:] == ["fast"] * 10 + ["slow"]
    assert found.ours.median == pytest.approx(timing.SAMPLE_SECONDS / 10)


def test_a_first_call_that_compiles_does_not_count(clock: Clock) -> None:
    ours = clock.step("ours", 0.9, timing.SAMPLE_SECONDS / 2)
    found = time_in_turns([ours], [clock.step("theirs", 2.0)], device=CPU, repeats=1)
    # Two to warm up, one after the other side, and two that are timed.
    assert clock.diary.count("ours") == 2 + 1 + 2
    assert found.ours.median == pytest.approx(timing.SAMPLE_SECONDS / 2)


@pytest.mark.parametrize(("repeats", "pairs"), [(9, timing.PATIENCE.pairs), (2, 2)])
def test_long_sides_stop_early_but_never_before_three_pairs(
    clock: Clock, repeats: int, pairs: int
) -> None:
    long = clock.step("long", timing.PATIENCE.seconds)
    found = time_in_turns([long], [long], device=CPU, repeats=repeats)
    assert found.ratio.samples == pairs


def test_heavy_sides_are_not_warmed_up_and_one_pair_may_do(clock: Clock) -> None:
    ours = clock.step("ours", timing.HEAVY_PATIENCE.seconds)
    theirs = clock.step("theirs", 1.0)
    found = time_in_turns([ours], [theirs], device=CPU, repeats=9, heavy=True)
    assert clock.diary == ["ours", "theirs"]
    assert found.ratio.samples == 1
    quick = clock.step("quick", 1.0)
    assert time_in_turns([quick], [quick], device=CPU, repeats=3, heavy=True).ratio.samples == 3
