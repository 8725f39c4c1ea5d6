"""Bars hold for rows that exist, on the device that they were set for."""

import pytest

from jat_graph.lab.speed.bars import BARS, SLOPE_BARS, find_bars
from jat_graph.lab.speed.registry import BENCHMARKS, find_benchmark
from jat_graph.lab.speed.results import Row
from jat_graph.lab.speed.series import Settings
from tests.lab.speed.support import outcome, results


def rows(device: str):
    """Yield every row that a device would measure, and the results it stands in."""
    for name, benchmark in BENCHMARKS.items():
        for series in benchmark.series(Settings(device, 1)):
            for length in series.lengths:
                row = Row(series.what, series.against, length, outcome(), 1.0)
                yield results(name, row, device=device), row


def test_every_bar_is_that_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    met = {bar for device in ("cpu", "cuda") for entry in rows(device) for bar in find_bars(*entry)}
    assert met == set(BARS)


def test_bars_of_one_device_do_not_hold_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for device in ("cpu", "cuda"):
        found = [find_bars(*entry) for entry in rows(device)]
        assert {bar.device for bars in found for bar in bars} == {device}
        assert () in found


def test_slope_bars_are_of_numbers_that_grow() -> None:
    for name, number in SLOPE_BARS:
        assert number in find_benchmark(name).growing
