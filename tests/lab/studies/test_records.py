"""Finished cells on disk, written by several processes into one folder."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jat_graph.lab.studies import read_results
from jat_graph.lab.studies.records import RECORD_FILE, Store
from jat_graph.training.processes import Processes
from tests.lab.studies.conftest import Plans
from tests.lab.studies.support import made_up


def test_cells_are_saved_and_gathered(plans: Plans, tmp_path: Path) -> None:
    store = Store(plans(), tmp_path)
    assert store.finished() == {}
    store.save(made_up(arm="JAT"))
    store.save(made_up())
    results = store.gather()
    assert [record.arm for record in results.records] == ["base", "JAT"]
    assert results == read_results(tmp_path / "results.jsonl")
    assert results.data == plans().data_name and results.machine["cores"]
    text = (tmp_path / "results.jsonl").read_text(encoding="utf-8")
    assert str(plans().data_dir) not in text and plans().model not in text


def test_gathering_twice_changes_nothing(plans: Plans, tmp_path: Path) -> None:
    store = Store(plans(), tmp_path)
    store.save(made_up(answers={"validation": {"said": [0.123456789], "right": [1.0]}}))
    store.gather()
    before = (tmp_path / "results.jsonl").read_bytes()
    store.gather()
    assert (tmp_path / "results.jsonl").read_bytes() == before


def test_what_another_process_finishes_meanwhile_is_not_lost(
    plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jat_graph.lab.studies import records

    ours, theirs, original = (
        Store(plans(), tmp_path),
        Store(plans(), tmp_path),
        records.write_results,
    )
    ours.save(made_up())

    def finish_another_first(*arguments: object) -> None:
        monkeypatch.setattr(records, "write_results", original)
        theirs.save(made_up(arm="JAT"))
        theirs.gather()
        original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(records, "write_results", finish_another_first)
    assert len(ours.gather().records) == 2
    assert len(read_results(tmp_path / "results.jsonl").records) == 2


def test_the_common_file_alone_is_enough(plans: Plans, tmp_path: Path) -> None:
    first = Store(plans(), tmp_path / "one")
    first.save(made_up())
    first.gather()
    (tmp_path / "two").mkdir()
    copied = tmp_path / "two" / "results.jsonl"
    copied.write_bytes(first.path.read_bytes())
    assert [str(cell) for cell in Store(plans(), tmp_path / "two").finished()] == [
        "cola, base, seed 0"
    ]


def test_other_experiments_are_refused_and_left_alone(plans: Plans, tmp_path: Path) -> None:
    store = Store(plans(), tmp_path)
    store.save(made_up())
    store.gather()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match=r"results.jsonl holds .* options.epochs=1, not 2"):
        Store(plans(training={**plans().grid.training, "epochs": 2}), tmp_path).finished()
    store.path.unlink()
    with pytest.raises(ValueError, match=r"record.json holds .* options.epochs=1, not 2"):
        Store(plans(training={**plans().grid.training, "epochs": 2}), tmp_path).finished()
    with pytest.raises(ValueError, match=r"record.json holds results with fingerprint="):
        Store(plans(name="else"), tmp_path).finished()
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == {path: text for path, text in before.items() if path != store.path}


def test_cells_of_another_number_of_processes_are_refused(plans: Plans, tmp_path: Path) -> None:
    store = Store(plans(), tmp_path)
    store.save(made_up())
    path = store.folder(plans().cells[0]) / RECORD_FILE
    content = json.loads(path.read_text())
    del content["processes"]  # as records were before
    path.write_text(json.dumps(content))
    assert len(store.finished()) == 1
    with pytest.raises(ValueError, match=r"record.json holds results with processes=1, not 2"):
        Store(replace(plans(), processes=Processes(2)), tmp_path).finished()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "record.json must be JSON"),
        ("[]", "record.json must be a JSON object, got list"),
        ("{}", "record.json holds results with fingerprint=None"),
    ],
)
def test_half_a_record_is_refused(plans: Plans, tmp_path: Path, content: str, words: str) -> None:
    store = Store(plans(), tmp_path)
    path = store.folder(plans().cells[0]) / RECORD_FILE
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(ValueError, match=words):
        store.finished()


def test_a_record_without_a_cell_is_refused(plans: Plans, tmp_path: Path) -> None:
    store = Store(plans(), tmp_path)
    store.save(made_up())
    path = store.folder(plans().cells[0]) / RECORD_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | {"record": {"task": "cola"}}))
    with pytest.raises(ValueError, match=r"record\.json: arm must be given, got nothing"):
        store.finished()


def test_an_arm_of_the_same_folder_is_another_cell(plans: Plans, tmp_path: Path) -> None:
    Store(plans(), tmp_path).save(made_up(arm="JAT"))
    arms = [dict(arm) for arm in plans().grid.to_dict()["arms"]]
    arms[1]["name"] = "jat"
    with pytest.raises(ValueError, match="must hold the cell cola, jat, seed 0, got cola, JAT"):
        Store(plans(arms=arms), tmp_path).finished()


def test_a_cell_says_what_it_ran_on(plans: Plans, tmp_path: Path) -> None:
    store = Store(plans(), tmp_path)
    store.save(made_up())
    (record,) = store.gather().records
    assert record.machine["cores"] and record.machine["torch"]
