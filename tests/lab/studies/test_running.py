"""An experiment from its grid to its files, on a tiny model."""

import json
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jat_graph.config import JatConfig, PairGraph
from jat_graph.lab.store import locked
from jat_graph.lab.studies import CellsFailedError, Record, Results, read_results, run_experiment
from jat_graph.lab.studies.cells import cell_folder
from jat_graph.lab.studies.fine_tuning import FineTuning
from jat_graph.lab.studies.records import Store
from jat_graph.lab.studies.running import finish_cell
from jat_graph.tasks import get_task
from tests.lab.studies.conftest import Plans
from tests.lab.studies.support import CONTENT, made_up
from tests.lab.studies.test_fine_tuning_trials import TUNED

DENSITY = {"name": "density", "heads": "paper", "settings": {"heads": "6/12"}, "density": 0.3}


@pytest.fixture
def cells_run(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cells that were run from here on, none of them really."""
    seen: list[str] = []

    def run_cell(kind: Any, cell: Any, plan: Any, folder: Path, progress: bool) -> Record:
        seen.append(str(cell))
        if cell.arm == "broken":
            raise ValueError("the loss became nan\nat step 3")
        scores = {"validation": {"matthews": 0.5 + 0.1 * cell.seed}}
        return made_up(cell.task, cell.arm, cell.seed, scores=scores)

    monkeypatch.setattr(FineTuning, "run_cell", run_cell)
    return seen


def same(one: Results, other: Results) -> bool:
    """Tell whether all but times are equal."""
    plain = [[{**r.to_dict(), "seconds": 0} for r in found.records] for found in (one, other)]
    return plain[0] == plain[1]


def test_a_whole_experiment(plans: Plans, tmp_path: Path) -> None:
    plan = plans(**{**TUNED, "arms": [*TUNED["arms"], DENSITY], "seeds": 1})
    results = run_experiment(plan, tmp_path, progress=False)
    assert [record.arm for record in results.records] == ["base", "JAT", "JAT†", "density"]
    base, jat, efficient, density = results.records
    assert base.heads is None and base.threshold is None and base.tuning is None
    assert jat.tuning is not None and jat.threshold in (4.0, 0.5)
    assert f"{jat.threshold:g}" == max(jat.tuning, key=lambda key: jat.tuning[key] or -1)
    assert JatConfig.from_dict(dict(jat.heads or {})) == JatConfig(
        PairGraph(threshold=jat.threshold), heads=2
    )
    assert efficient.threshold == jat.threshold
    assert JatConfig.from_dict(dict(density.heads or {})).threshold != JatConfig().threshold
    for record in results.records:
        said = record.answers["validation"]
        assert record.examples == {"train": 48, "validation": 24}
        measured = get_task("cola").measure(said["said"], said["right"])
        assert measured == pytest.approx(record.scores["validation"])
        assert not (cell_folder(tmp_path, record.cell) / "model").exists()
    assert read_results(tmp_path / "results.jsonl") == results
    assert "| " in (tmp_path / "small.md").read_text(encoding="utf-8")
    assert (tmp_path / "small.png").exists()


def test_what_was_killed_goes_on_and_gives_the_same(plans: Plans, tmp_path: Path) -> None:
    plan = plans(arms=[{"name": "base"}, DENSITY], seeds=1)
    whole = run_experiment(plan, tmp_path / "whole", progress=False)
    folder = tmp_path / "cut"
    run_experiment(plan, folder, progress=False)
    (folder / "results.jsonl").unlink()
    for record in folder.rglob("record.json"):
        record.unlink()  # killed between the end of training and the record
    again = run_experiment(plan, folder, progress=False)
    assert same(whole, again)


def test_finished_cells_are_not_run_again(
    plans: Plans, tmp_path: Path, cells_run: list[str]
) -> None:
    first = run_experiment(plans(), tmp_path, progress=False)
    assert cells_run == [str(cell) for cell in plans().cells]
    assert run_experiment(plans(), tmp_path, progress=False) == first
    assert len(cells_run) == 4
    more = run_experiment(plans(seeds=3), tmp_path, progress=False)
    assert cells_run[4:] == ["cola, base, seed 2", "cola, JAT, seed 2"]
    assert len(more.records) == 6
    with pytest.raises(ValueError, match=r"results.jsonl holds the cell cola, .*, seed 2, which"):
        run_experiment(plans(), tmp_path, progress=False)


def test_seeds_that_are_named_may_be_added_to(
    plans: Plans, tmp_path: Path, cells_run: list[str]
) -> None:
    run_experiment(plans(seeds=[7, 5]), tmp_path, progress=False)
    more = run_experiment(plans(seeds=[7, 5, 9]), tmp_path, progress=False)
    assert cells_run[4:] == ["cola, base, seed 9", "cola, JAT, seed 9"]
    assert read_results(tmp_path / "results.jsonl") == more
    assert [record.seed for record in more.of("cola", "JAT")] == [5, 7, 9]


def test_parts_share_a_folder(plans: Plans, tmp_path: Path, cells_run: list[str]) -> None:
    counts = [
        len(run_experiment(plans(), tmp_path, part=(index, 3), progress=False).records)
        for index in (1, 2, 3)
    ]
    assert counts == [2, 3, 4]
    assert sorted(cells_run) == sorted(str(cell) for cell in plans().cells)
    assert not (tmp_path / "small.md").exists()  # parts that end together would overwrite it
    run_experiment(plans(), tmp_path, progress=False)
    assert (tmp_path / "small.md").exists() and len(cells_run) == 4


def test_arms_may_be_run_alone(plans: Plans, tmp_path: Path, cells_run: list[str]) -> None:
    found = run_experiment(plans(), tmp_path, arms=["JAT"], progress=False)
    assert cells_run == ["cola, JAT, seed 0", "cola, JAT, seed 1"]
    assert (tmp_path / "small.md").exists() and len(found.records) == 2
    assert len(run_experiment(plans(), tmp_path, tasks=["cola"], progress=False).records) == 4
    assert cells_run[2:] == ["cola, base, seed 0", "cola, base, seed 1"]


def test_a_cell_that_fails_does_not_stop_the_others(
    plans: Plans, tmp_path: Path, cells_run: list[str]
) -> None:
    arms = [*CONTENT["arms"][:1], {"name": "broken", "heads": "paper", "settings": {"heads": 2}}]
    with pytest.raises(CellsFailedError) as caught:
        run_experiment(plans(arms=arms), tmp_path, progress=False)
    message = str(caught.value)
    assert message == ("2 of 4 cells failed; the first: cola, broken, seed 0: the loss became nan")
    results = read_results(tmp_path / "results.jsonl")
    assert [record.seed for record in results.of("cola", "base")] == [0, 1]
    assert (tmp_path / "small.md").exists()
    assert len(cells_run) == 4


def test_bad_data_fails_before_anything_is_written(plans: Plans, tmp_path: Path) -> None:
    plan = replace(plans(seeds=1), data_dir=tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="none does not exist"):
        run_experiment(plan, tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


def test_what_another_process_is_at_is_left_to_it(
    plans: Plans, tmp_path: Path, cells_run: list[str]
) -> None:
    first = plans().cells[0]
    with locked(cell_folder(tmp_path, first), wait=False):
        results = run_experiment(plans(), tmp_path, progress=False)
    assert len(results.records) == 3 and str(first) not in cells_run


def test_who_waits_for_another_process_finds_the_cell_finished(
    plans: Plans, tmp_path: Path, cells_run: list[str]
) -> None:
    store, cell = Store(plans(), tmp_path), plans().cells[0]
    with ThreadPoolExecutor() as pool:
        with locked(store.folder(cell), wait=False):
            waiting = pool.submit(finish_cell, cell, store, False, wait=True)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)
            store.save(made_up())
        assert waiting.result(timeout=60)
    assert cells_run == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"jobs": 0}, "jobs must be a positive integer, got 0"),
        ({"part": (3, 2)}, "part must be I/N with I from 1 to N, got 3/2"),
    ],
)
def test_wrong_arguments_leave_nothing(
    plans: Plans, tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        run_experiment(plans(), tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_times_are_taken_one_at_a_time(plans: Plans, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"jobs must be 1 where times are compared, .* got 2"):
        run_experiment(plans(columns=["seconds"]), tmp_path / "out", jobs=2)
    assert not (tmp_path / "out").exists()


def test_a_launcher_is_refused(
    plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="runs each cell in one process, got 2 of a launcher"):
        run_experiment(plans(), tmp_path)


def test_a_folder_of_another_experiment_is_left_alone(
    plans: Plans, tmp_path: Path, cells_run: list[str]
) -> None:
    run_experiment(plans(), tmp_path, progress=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    other = {**CONTENT["training"], "learning_rate": 0.1}
    with pytest.raises(ValueError, match=r"with options\.learning_rate=0\.003, not 0\.1"):
        run_experiment(plans(training=other), tmp_path, progress=False)
    (tmp_path / "results.jsonl").write_text("{half", encoding="utf-8")
    with pytest.raises(ValueError, match="line 1 must be JSON"):
        run_experiment(plans(), tmp_path, progress=False)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path for path in before if before[path] != after[path]} == {tmp_path / "results.jsonl"}
    assert json.dumps(len(cells_run)) == "4"
