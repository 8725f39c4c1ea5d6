"""How long a benchmark takes and how much memory, said before it begins."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from jat_graph.lab.speed.known import known_growth
from jat_graph.lab.speed.scaling import Expected, Growth
from jat_graph.lab.speed.series import Benchmark, Series, Settings
from jat_graph.training.estimate import Cost
from jat_graph.training.memory import missing_peaks, reset_peak

# Seconds of a step: one of less says little of the machine, one of more is timed only once; some
# samples of brief ones even out what else the machine does.
LEAST, BRIEF = 0.02, 0.5
TIMES = 9

logger = logging.getLogger(__name__)

Known = Mapping[tuple[str, str], Growth]


class Point(NamedTuple):
    """A comparison at a length."""

    series: Series
    length: int

    def expect(self, known: Known, repeats: int) -> Expected:
        """What it takes where the table was measured."""
        return known[self.series.what, self.series.against].expect(self.length, repeats)


def say_cost(
    benchmark: Benchmark, points: Sequence[tuple[Series, int]], settings: Settings, *, patient: bool
) -> None:
    """Say what some points take, by what such points took before and one timed step here.

    Unless the user is patient, points that would take too long are left out.
    """
    known = known_growth(benchmark.name, settings.device)
    wanted = [Point(*point) for point in points]
    told = [point for point in wanted if (point.series.what, point.series.against) in known]
    if not told:
        logger.info("how long it takes is not known: nothing like it was measured before")
        return
    before = None if missing_peaks(settings.device) else reset_peak(settings.torch_device)
    pace = _measure_pace(_step(told, known), known, settings, in_bytes=benchmark.unit == "bytes")
    most = math.inf if patient or benchmark.patience is None else benchmark.patience / pace
    expected = [point.expect(known, settings.repeats) for point in told]
    cost = _cost([one for one in expected if one.seconds <= most], pace, before)
    missing = len({series for series, _ in wanted} - {series for series, _ in told})
    rest = f", without {missing} comparisons that were never measured" if missing else ""
    logger.info("%s, by one timed step%s", cost, rest)


def _step(points: Sequence[Point], known: Known) -> Point:
    """What is cheap to time and says enough: one of the points, or a shorter input of one."""
    shorter = [
        Point(series, growth.shortest)
        for series, _ in points
        if (growth := known[series.what, series.against]).shortest <= series.largest
    ]

    def price(point: Point) -> tuple[bool, float]:
        expected = point.expect(known, 1)
        brief = expected.step < LEAST
        return brief, -expected.step if brief else expected.seconds

    return min([*points, *shorter], key=price)


def _measure_pace(point: Point, known: Known, settings: Settings, *, in_bytes: bool) -> float:
    """How many times as long a step takes here as where the table was measured."""
    series, length = point
    brief = not in_bytes and point.expect(known, 1).step < BRIEF
    times = TIMES if brief else 1
    logger.info("timing a step of %s, L=%d", series.what, length)
    with _quiet():
        begin = time.perf_counter()
        outcome = series.measure(length, replace(settings, repeats=times))
        seconds = time.perf_counter() - begin
    expected = point.expect(known, times)
    if in_bytes or outcome.ours is None or outcome.theirs is None:
        return seconds / expected.seconds
    return (outcome.ours.median + outcome.theirs.median) / expected.step


def _cost(expected: Sequence[Expected], pace: float, before: int | None) -> Cost:
    """What points take that took so much elsewhere, from so many bytes on."""
    peaks = [one.memory for one in expected if one.memory is not None]
    memory = round(before + max(peaks)) if peaks and before is not None else None
    return Cost(pace * sum(one.seconds for one in expected), memory)


@contextmanager
def _quiet() -> Iterator[None]:
    """Let a step that is only timed announce nothing."""
    messages = logging.getLogger("jat_graph")
    level = messages.level
    messages.setLevel(logging.ERROR)
    try:
        yield
    finally:
        messages.setLevel(level)
