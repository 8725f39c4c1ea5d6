"""bench, from options to table, file and picture."""

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from jat_graph.benchmarks import CheckError, read_results
from jat_graph.lab.speed import costs, growth
from tests.cli.conftest import Run
from tests.lab.speed.conftest import quick
from tests.lab.speed.support import results

__all__ = ["quick"]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("name", "lengths", "points"),
    [
        ("kernels", "32,48", 16),
        ("heads", "32,40", 8),
        ("model", "32,48", 8),
        ("growth", "32,64", 2),
        ("long", "32,40", 20),
    ],
)
def test_every_benchmark_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, lengths: str, points: int
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ("--lengths", lengths, "--repeats", "1", "--device", "cpu", "--plot", "picture.png")
    shown = run("bench", name, *options).stdout
    found = read_results(f"bench-{name}.json")
    assert len(found.rows) == points
    assert f"Results are in bench-{name}.json." in shown
    for row in found.rows:
        assert f"{row.what}, against {row.against}" in shown
        ratio = row.number("ratio")
        assert ratio is None or f"{ratio:.3g}" in shown or f"{ratio:.0f}" in shown
    assert str(found.machine["processor"]) in shown
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")
    assert run("bench", name, *options).stdout == shown  # nothing is measured again


def test_memory_runs_in_processes_of_its_own(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "jat_graph")
    output = tmp_path / "memory.json"
    shown = run(
        "bench", "memory", "--lengths", "512", "--repeats", "1", "--device", "cpu",
        "--json", output,
    ).stdout  # fmt: skip
    assert re.search(r"about \d+ (s|min)( and .*B of memory)?, by one timed step", caplog.text)
    (row,) = read_results(output).rows
    if row.outcome.note:
        pytest.skip(row.outcome.note)
    assert 0 < row.number("multiple") < 20
    assert "MiB" in shown


@pytest.mark.usefixtures("quick")
def test_nothing_is_printed_where_a_check_fails(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = growth.sum_joined
    monkeypatch.setattr(growth, "sum_joined", lambda *arguments: right(*arguments) * 1.001)
    output = tmp_path / "growth.json"
    with pytest.raises(CheckError, match=r"^threshold product, L=\d+: the result check failed"):
        run("bench", "growth", "--lengths", "32", "--json", output)
    assert capsys.readouterr().out == ""
    assert read_results(output).rows == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "benchmark must be one of kernels, .*, costs, got 'speed'"),
        (["growth", "--lengths", "long"], "--lengths must be whole numbers, .* got 'long'"),
        (["growth", "--lengths", "8"], "lengths must be whole numbers from 16 to .* got 8"),
        (["growth", "--lengths", ","], "lengths must be whole numbers from 16 to .* got none"),
        (["growth", "--repeats", "0"], "repeats must be at least 1, got 0"),
        (["growth", "--device", "tpu"], "--device must be one of cpu, cuda, got 'tpu'"),
        (
            ["growth", "--plot", "x.jpg"],
            r"--plot must be .* \.png, \.svg or \.pdf, got 'x\.jpg",
        ),
        (["growth", "--json", "bad.json"], r"results bad\.json must be JSON"),
        (
            ["growth", "--json", "heads.json"],
            r"heads\.json holds .* benchmark='heads', not 'growth'",
        ),
    ],
)
def test_wrong_use_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{", encoding="utf-8")
    results("heads").save("heads.json")
    before = {path: path.read_bytes() for path in Path().iterdir()}
    with pytest.raises(ValueError, match=message):
        run("bench", *arguments)
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


@pytest.mark.parametrize("name", ["growth", "costs"])
@pytest.mark.parametrize("option", ["--json", "--plot"])
def test_files_without_a_folder_are_refused_before_anything_is_measured(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError, match="must be a file in a folder that is there"):
        run("bench", name, option, "none/file.png")
    with pytest.raises(OSError, match="must be a file, got a folder"):
        run("bench", name, option, tmp_path)
    assert list(tmp_path.iterdir()) == []


FAILING = """
import sys
from jat_graph import cli
from jat_graph.lab.speed import runner
from jat_graph.lab.speed.checks import CheckError

def fail(series, length, settings):
    raise CheckError("count, L=32: the result check failed")

runner._measure = fail
sys.argv = ["jat-graph", "bench", "growth", "--lengths", "32"]
cli.main()
"""


def test_a_failed_check_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILING],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    *told, error = done.stderr.splitlines()
    assert error == "jat-graph: error: count, L=32: the result check failed"
    assert "by one timed step" in " ".join(" ".join(told).split())


def test_costs_are_refitted(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs.measure_prices, "__defaults__", ((32,), 1))
    shown = run("bench", "costs", "--device", "cpu", "--json", tmp_path / "costs.json").stdout
    assert "vote" in shown and "costs.json" in shown
    assert (tmp_path / "costs.json").exists()
