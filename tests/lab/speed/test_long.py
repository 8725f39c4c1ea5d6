"""Rows of long encoders: time and memory of both sides, and a BigBird that must stay sparse."""

import pytest

from jat_graph.lab.speed import long
from jat_graph.lab.speed.bars import find_bars
from jat_graph.lab.speed.long import LONG, NO_PEAKS, NO_ROOM, NOT_SPARSE, memory_facts, peak
from jat_graph.lab.speed.long_models import ALONE, BIGBIRD, JUMPS, LONGFORMER, STOCK
from jat_graph.lab.speed.results import Row
from jat_graph.lab.speed.series import Series, Settings
from jat_graph.lab.speed.tables import results_markdown, slope_lines
from tests.lab.speed.support import outcome, results

SERIES = {
    series.against: series for series in LONG.series(Settings("cpu", 1)) if series.what == JUMPS
}


def measured(series: Series, length: int, ours: float, theirs: float, **facts: float) -> Row:
    return Row(series.what, series.against, length, outcome(ours, theirs, **facts), 1.0)


@pytest.mark.usefixtures("quick")
def test_a_row_has_time_and_memory_of_both_sides(
    settings: Settings, said: pytest.LogCaptureFixture
) -> None:
    found = SERIES[ALONE].measure(48, settings)
    assert found.ratio is not None
    assert found.facts["our_bytes"] == 48 * len(JUMPS)
    assert found.facts["memory_ratio"] == len(JUMPS) / len(ALONE)
    assert f"{JUMPS} against {ALONE}, L=48: results agree; " in said.text


@pytest.mark.usefixtures("quick")
def test_a_bigbird_that_is_not_sparse_is_refused(settings: Settings) -> None:
    found = SERIES[BIGBIRD].measure(48, settings)
    assert (found.ratio, found.facts, found.note) == (None, {}, NOT_SPARSE)


@pytest.mark.usefixtures("quick")
def test_a_system_without_peaks_is_said(settings: Settings, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(long, "PEAK_RESET", tmp_path / "missing")
    found = SERIES[STOCK].measure(48, settings)
    assert found.ratio is not None
    assert found.note == NO_PEAKS
    assert "our_bytes" not in found.facts


def test_the_memory_of_a_side_is_measured_once(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(long, "probe", lambda *arguments: asked.append(arguments) or 8)
    for side in (JUMPS, STOCK, JUMPS):
        assert peak(side, 32, "cpu") == 8
    assert asked == [(side, 32, Settings("cpu", 1), "long_probe") for side in (JUMPS, STOCK)]
    peak.cache_clear()


def test_a_side_that_does_not_fit_is_a_note_and_no_end(settings: Settings) -> None:
    """Tokens by the petabyte: their process fails for want of memory, and nothing is timed."""
    found = SERIES[STOCK].measure(2**48, settings)
    assert (found.ratio, found.facts, found.note) == (None, {}, NO_ROOM)


def test_lengths_are_those_of_the_claims() -> None:
    assert SERIES[STOCK].lengths == (512, 1024, 2048, 4096, 8192, 16384)
    assert {series.largest for series in SERIES.values()} == {65536}


@pytest.mark.parametrize(("length", "numbers"), [(1024, []), (2048, ["ratio", "memory_ratio"])])
def test_faster_and_smaller_than_the_others_from_2048_on(length: int, numbers: list[str]) -> None:
    row = measured(SERIES[LONGFORMER], length, 1.0, 2.0, **memory_facts(2**20, 2**22))
    found = results("long", row)
    assert [bar.number for bar in find_bars(found, row)] == numbers
    text = results_markdown(found)
    assert ("| ≤ 1 |" in text) == bool(numbers)
    assert "peak memory 1 MiB; of the other 4 MiB; memory ratio 0.25" in text
    assert ("memory ratio 0.25 (bar: at most 1)" in text) == bool(numbers)


def test_slopes_are_from_2048_on_and_said_once_a_side() -> None:
    rows = [
        measured(SERIES[other], n, max(n, 2048.0), n**2.0)
        for other in (ALONE, STOCK)
        for n in SERIES[other].lengths
    ]
    first, *others = slope_lines(results("long", *rows))
    assert first == f"Log–log slope from 2048 on, {JUMPS}: 1.00 (bar: at most 1.15)."
    assert [line[-5:] for line in others] == ["2.00."] * 2
