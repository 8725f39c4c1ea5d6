"""Running a benchmark point by point, and going on where it stopped."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from jat_graph.lab.speed import runner
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.results import Row, read_results
from jat_graph.lab.speed.runner import run_benchmark
from jat_graph.lab.speed.series import Series
from jat_graph.training.memory import missing_peaks
from tests.lab.speed.support import Counting, outcome

ALL = [("short", 32), ("short", 64), ("long", 32), ("long", 64)]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    counting = Counting()
    monkeypatch.setattr(runner, "find_benchmark", lambda name: counting.benchmark)
    monkeypatch.setattr(runner, "source_digest", lambda: "0123456789ab")
    return counting


def test_all_points_are_measured_once_and_saved(counting: Counting, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    first = run_benchmark("growth", path=path, repeats=3)
    assert counting.measured == ALL
    assert read_results(path) == first
    assert [row.key for row in first.rows] == [(name, "nothing", n) for name, n in ALL]
    assert run_benchmark("growth", path=path, repeats=3) == first
    assert counting.measured == ALL


def test_an_interrupted_run_goes_on(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bench.json"
    measure, calls = runner._measure, []

    def interrupted(series: Series, length: int, settings) -> Row:
        calls.append(length)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return measure(series, length, settings)

    monkeypatch.setattr(runner, "_measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_benchmark("growth", path=path)
    assert len(read_results(path).rows) == 2
    assert len(run_benchmark("growth", path=path).rows) == 4
    assert counting.measured == ALL


def test_other_lengths_are_added(counting: Counting, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    run_benchmark("growth", path=path, lengths=[32])
    found = run_benchmark("growth", path=path, lengths=[128, 32, 16, 16])
    # 128 is beyond the short series.
    assert counting.measured == [
        ("short", 32), ("long", 32), ("short", 16), ("long", 16), ("long", 128),
    ]  # fmt: skip
    assert len(found.rows) == 5


@pytest.mark.parametrize("lengths", [[15], [4097], [32, -1], []])
def test_lengths_that_fit_nowhere_are_refused(
    counting: Counting, tmp_path: Path, lengths: list[int]
) -> None:
    with pytest.raises(ValueError, match="lengths must be whole numbers from 16 to 4096 for"):
        run_benchmark("growth", path=tmp_path / "bench.json", lengths=lengths)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"benchmark": "heads"}, "bench.json holds results with benchmark='heads', not 'growth': "),
        ({"settings": {"device": "cpu", "repeats": 5, "dtype": "float32"}},
         "holds results with settings.repeats=5, not 9: name another file, or remove it"),
        ({"machine": {"processor": "Z80"}}, "holds results with machine.cores=None, not "),
        ({"source": "00"}, "holds results with source='00', not '0123456789ab': "),
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_refused_and_kept(
    counting: Counting, tmp_path: Path, change: dict, message: str
) -> None:
    path = tmp_path / "bench.json"
    other = replace(run_benchmark("growth", path=path), **change)
    other.save(path)
    with pytest.raises(ValueError, match=message):
        run_benchmark("growth", path=path)
    assert read_results(path) == other


def test_what_would_take_too_long_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting(patience=100.0)
    monkeypatch.setattr(runner, "find_benchmark", lambda name: counting.benchmark)
    monkeypatch.setattr(
        runner,
        "_measure",
        lambda series, n, settings: Row(series.what, series.against, n, outcome(), 26.0),
    )
    path = tmp_path / "bench.json"
    with caplog.at_level(logging.INFO, "jat_graph"):
        found = run_benchmark("growth", path=path)
    assert [row.length for row in found.rows] == [32, 32]  # twice the length: four times 26 s
    assert "long, L=64 is left out: it would take about 104 s; --lengths 64" in caplog.text
    asked = run_benchmark("growth", path=path, lengths=[64])
    assert [row.length for row in asked.rows] == [32, 32, 64, 64]


def test_only_what_is_left_is_foreseen(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreseen = []
    monkeypatch.setattr(
        runner,
        "say_cost",
        lambda benchmark, points, settings, *, patient: foreseen.append(
            ([(series.what, length) for series, length in points], patient)
        ),
    )
    path = tmp_path / "bench.json"
    run_benchmark("growth", path=path, lengths=[32])
    run_benchmark("growth", path=path)
    run_benchmark("growth", path=path)
    assert foreseen == [([ALL[0], ALL[2]], True), ([ALL[1], ALL[3]], False)]


def test_the_memory_of_a_point_is_kept(counting: Counting, tmp_path: Path) -> None:
    rows = run_benchmark("growth", path=tmp_path / "bench.json").rows
    known = not missing_peaks("cpu")
    assert all((row.memory is not None and row.memory >= 0) == known for row in rows)
    assert read_results(tmp_path / "bench.json").rows == rows


def test_a_failed_check_leaves_no_row(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(series: Series, length: int, settings) -> Row:
        raise CheckError("wrong")

    monkeypatch.setattr(runner, "_measure", fail)
    with pytest.raises(CheckError, match="wrong"):
        run_benchmark("growth", path=tmp_path / "bench.json")
    assert read_results(tmp_path / "bench.json").rows == ()


def test_a_folder_that_is_not_there_shows_before_the_work(
    counting: Counting, tmp_path: Path
) -> None:
    with pytest.raises(OSError, match="nowhere"):
        run_benchmark("growth", path=tmp_path / "nowhere" / "bench.json")
    assert counting.measured == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device must be 'cpu' or 'cuda', got 'tpu'"),
        ({"repeats": 0}, "repeats must be at least 1, got 0"),
    ],
)
def test_bad_settings_are_named(
    counting: Counting, tmp_path: Path, options: dict, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run_benchmark("growth", path=tmp_path / "bench.json", **options)
