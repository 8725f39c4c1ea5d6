"""What a benchmark takes, said before it begins."""

import logging
from dataclasses import replace

import pytest

from jat_graph.lab.speed import foresight
from jat_graph.lab.speed.foresight import say_cost
from jat_graph.lab.speed.scaling import Growth, Known
from jat_graph.lab.speed.series import Benchmark, Series, Settings
from jat_graph.training.memory import missing_peaks
from tests.lab.speed.support import Counting, outcome

SETTINGS = Settings("cpu", 9)


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """Give two series whose points of 32 tokens take one second, and one for each repeat."""

    def growth(what: str) -> Growth:
        points = [
            Known(
                what,
                "nothing",
                n,
                once=n / 32,
                ours=n / 64,
                theirs=n / 64,
                most=None,
                memory=n * 2**20,
            )
            for n in (32, 64)
        ]
        return Growth(points)

    known = {(what, "nothing"): growth(what) for what in ("short", "long")}
    monkeypatch.setattr(foresight, "known_growth", lambda name, device: known)
    return Counting().benchmark


def _points(benchmark: Benchmark, *lengths: int) -> list[tuple[Series, int]]:
    return [(series, n) for series in benchmark.series(SETTINGS) for n in lengths]


def _timed(seconds: float, series: Series, seen: list[tuple[str, int, int]]) -> Series:
    def measure(length: int, settings: Settings):
        seen.append((series.what, length, settings.repeats))
        logging.getLogger("jat_graph").info("nobody wants to know")
        return outcome(ours=seconds / 2, theirs=seconds / 2)

    return replace(series, measure=measure)


def test_time_and_memory_are_told_by_one_cheap_step(
    benchmark: Benchmark, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, int]] = []
    points = [(_timed(10.0, series, seen), n) for series, n in _points(benchmark, 64)]
    monkeypatch.setattr(foresight, "reset_peak", lambda device: 2**20)
    monkeypatch.setattr(foresight, "missing_peaks", lambda device: "")
    say_cost(benchmark, points, SETTINGS, patient=True)
    assert seen == [("short", 32, 1)]  # where one takes ten times as long
    first, second = said.messages
    assert first == "timing a step of short, L=32"
    assert second == "about 7 min and 65 MiB of memory, by one timed step"


def test_without_peaks_only_the_time_is_told(
    benchmark: Benchmark, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foresight, "missing_peaks", lambda device: "only Linux")
    points = [(_timed(1.0, series, []), n) for series, n in _points(benchmark, 32)]
    say_cost(benchmark, points[:1], SETTINGS, patient=True)
    assert said.messages[-1] == "about 10 s, by one timed step"
    assert missing_peaks("cuda") == ""


def test_what_will_be_left_out_is_not_counted(
    benchmark: Benchmark, said: pytest.LogCaptureFixture
) -> None:
    benchmark = replace(benchmark, patience=15.0)
    points = [(_timed(1.0, series, []), n) for series, n in _points(benchmark, 32, 64)]
    for patient, told in ((False, "about 20 s"), (True, "about 60 s")):
        say_cost(benchmark, points, SETTINGS, patient=patient)
        assert said.messages[-1].startswith(told)


def test_what_was_never_measured_is_said(
    benchmark: Benchmark, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [(_timed(1.0, series, []), n) for series, n in _points(benchmark, 32)]
    new = (replace(points[0][0], what="new"), 32)
    say_cost(benchmark, [points[0], new], SETTINGS, patient=True)
    assert said.messages[-1].endswith("step, without 1 comparisons that were never measured")
    monkeypatch.setattr(foresight, "known_growth", lambda name, device: {})
    say_cost(benchmark, points, SETTINGS, patient=True)
    assert (
        said.messages[-1] == "how long it takes is not known: nothing like it was measured before"
    )


def test_of_bytes_all_of_the_point_is_timed(
    benchmark: Benchmark, said: pytest.LogCaptureFixture
) -> None:
    points = [(_timed(1.0, series, []), n) for series, n in _points(benchmark, 32)]
    say_cost(replace(benchmark, unit="bytes"), points, SETTINGS, patient=True)
    assert said.messages[-1].startswith("about 1 s")


def test_steps_that_are_too_brief_say_nothing(benchmark: Benchmark) -> None:
    brief = [Known("brief", "nothing", n, 0.1, n / 1e6, n / 1e6, None, None) for n in (32, 6400)]
    long = [Known("long", "nothing", n, 9.0, 1.0, 1.0, None, None) for n in (32, 64)]
    growth = {("brief", "nothing"): Growth(brief), ("long", "nothing"): Growth(long)}
    series = [replace(benchmark.series(SETTINGS)[0], what=what) for what in ("brief", "long")]
    points = [foresight.Point(one, 64) for one in series]
    assert foresight._step(points, growth) == points[1]
    assert foresight._step(points[:1], growth) == points[0]
