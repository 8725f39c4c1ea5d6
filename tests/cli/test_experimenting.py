"""The command experiment, thin over jat_graph.lab.studies."""

from pathlib import Path
from typing import Any

import pytest

from jat_graph.cli import main
from jat_graph.lab.studies import load_grid, read_results
from jat_graph.lab.studies.fine_tuning import FineTuning
from tests.cli.conftest import Run

GRID = """
name = "mine"
title = "My grid"
tasks = ["cola"]
seeds = 1
budget = "made for seconds"
[training]
epochs = 1
batch_size = 16
max_length = 16
trainer = { lr_scheduler_type = "cosine", max_grad_norm = 0.5 }
[[arms]]
name = "base"
[[arms]]
name = "JAT"
heads = "paper"
settings = { heads = "6/12", threshold = 4.0 }
"""


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(GRID, encoding="utf-8")
    return path


def test_an_experiment_is_estimated_run_and_shown(
    run: Run, tiny_model: str, cola_dir: str, grid: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    common = (
        "experiment", grid, "--model", tiny_model, "--data-dir", cola_dir, "--output", output,
        "--device", "cpu",
    )  # fmt: skip
    shown = run(*common, "--dry-run", "--seeds", "2").output
    assert "4 cells, 0 of them finished; 4 to run" in shown and "timed steps" in shown
    assert "made for seconds" in shown
    assert not output.exists()
    shown = run(*common).output
    assert shown.index("of training here") < shown.index("2 cells, 0 of them finished")
    assert "Results are in" in shown and "mine.md" in shown
    assert len(read_results(output / "results.jsonl").records) == 2
    assert {path.name for path in output.iterdir()} >= {"results.jsonl", "mine.md", "mine.png"}
    assert "Nothing is left to do." in run(*common, "--dry-run").output
    (output / "mine.md").unlink()
    assert "without --part the table is made" in run(*common, "--part", "1/2").output
    assert not (output / "mine.md").exists()
    shown = run(*common, "--dry-run", "--seeds", "3", "--part", "2/2").output
    assert "3 cells, 1 of them finished; 2 to run" in shown and "finished cells" in shown
    assert "one after another" in shown
    shown = run(*common, "--dry-run", "--seeds", "3", "--jobs", "2").output
    assert "2 at a time if they do not slow each other" in shown


def test_a_grid_is_copied_to_be_changed(run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "mine.toml"
    assert "change it" in run("experiment", "layers", "--copy", copy).output
    assert load_grid(str(copy)) == load_grid("layers")
    with pytest.raises(ValueError, match="--copy must be a new file"):
        run("experiment", "heads", "--copy", copy)
    assert load_grid(str(copy)) == load_grid("layers")
    with pytest.raises(ValueError, match=r"--copy must be a file name ending in \.toml"):
        run("experiment", "heads", "--copy", tmp_path / "mine.txt")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tables"], r"experiment must be one of .* got 'tables'"),
        (["layers"], "an experiment needs --model"),
        (["layers", "--part", "0"], "--part must be I/N, as 2/8, got '0'"),
        (["layers", "--part", "3/2"], "--part must be I/N with I from 1 to N, got '3/2'"),
        (["layers", "--part", "a/b"], "--part must be I/N, as 2/8, got 'a/b'"),
        (["layers", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["layers", "--dry-run", "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["layers", "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["layers", "--device", "tpu"], "device must be one of auto, cpu, got 'tpu'"),
    ],
)
def test_wrong_use_is_named(
    run: Run, tiny_model: str, tmp_path: Path, arguments: list[str], message: str
) -> None:
    model = [] if arguments == ["layers"] else ["--model", tiny_model]
    with pytest.raises(ValueError, match=message):
        run("experiment", *arguments, *model, "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def exit_code(error: BaseException, arguments: list[str], patch: pytest.MonkeyPatch) -> object:
    """Run the command where each cell raises something, and return its exit code."""

    def raise_it(*_: Any) -> None:
        raise error

    patch.setattr(FineTuning, "run_cell", raise_it)
    patch.setattr("sys.argv", ["jat-graph", "experiment", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


def test_cells_that_fail_or_are_interrupted_end_in_one_line(
    tiny_model: str,
    cola_dir: str,
    grid: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [str(grid), "--model", tiny_model, "--data-dir", cola_dir]
    assert exit_code(ValueError("the loss became nan"), arguments, monkeypatch) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("jat-graph: error: 2 of 2 cells failed; the first: ")
    assert last.endswith("the loss became nan")
    assert (tmp_path / "experiment-mine" / "results.jsonl").exists()
    assert exit_code(KeyboardInterrupt(), arguments, monkeypatch) == 130
    assert "interrupted; the same command goes on" in capsys.readouterr().err


def test_a_missing_folder_of_data_leaves_nothing_behind(
    run: Run, tiny_model: str, grid: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    common = ("experiment", grid, "--model", tiny_model, "--output", output)
    with pytest.raises(OSError, match="none does not exist"):
        run(*common, "--data-dir", tmp_path / "none")
    assert not output.exists()
