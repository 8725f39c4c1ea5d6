"""Cells of stepping stones: lessons that all arms share, questions, and what is resumed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jat_graph import tasks
from jat_graph.lab.studies import running, stepping_stones
from jat_graph.lab.studies.cells import Cell, Plan, cell_folder
from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.kinds import KINDS
from jat_graph.lab.studies.running import run_experiment
from jat_graph.training.runner import train
from jat_graph.training.storage import read_json

KIND = KINDS["stepping-stones"]

Plans = Callable[..., Plan]

SIZES = {"train_size": 48, "validation_size": 12, "test_size": 36}
LESSONS = [{"task": "stepping-stones-first"}, {"task": "stepping-stones-one"}]


@pytest.fixture(autouse=True)
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw fewer texts than anybody would learn from."""
    for name, task in tasks._TASKS.items():
        if name.startswith("steppingstones"):
            monkeypatch.setitem(tasks._TASKS, name, replace(task, **SIZES))


@pytest.fixture
def plan(tiny_model: str) -> Plans:
    """Return a plan of two arms, with any key of the grid replaced."""

    def build(**changes: Any) -> Plan:
        content = {
            "name": "stones",
            "title": "Stones",
            "kind": "stepping-stones",
            "tasks": ["2 layers", "pretrained"],
            "seeds": 1,
            "training": {"epochs": 1, "batch_size": 24, "max_train_samples": 24},
            "stepping-stones": {"lessons": LESSONS},
            "arms": [
                {"name": "base"},
                {"name": "JAT", "heads": "paper", "settings": {"heads": "2/4", "vote_rate": 0.1}},
            ],
        }
        return Plan(Grid.from_dict(content | changes), tiny_model, None, "cpu")

    return build


def test_arms_share_the_lessons_and_differ_in_their_heads(plan: Plans, tmp_path: Path) -> None:
    records = {}
    for arm in ("base", "JAT"):
        cell = Cell("2 layers", arm, 0)
        records[arm] = KIND.run_cell(cell, plan(), cell_folder(tmp_path, cell), False)
        folder = tmp_path / "lessons" / "2-layers" / "seed-0" / "attempt-1"
        runs = [folder / name for name in ("1-steppingstonesfirst", "2-steppingstonesone")]
        assert all((run / "results.json").exists() for run in runs)
        depths = [read_json(run / "model" / "config.json")["num_hidden_layers"] for run in runs]
        assert depths == [1, 2]  # type: ignore[comparison-overlap]
        if arm == "base":
            before = [(run / "results.json").stat().st_mtime_ns for run in runs]
        assert [(run / "results.json").stat().st_mtime_ns for run in runs] == before
    base, jump = records["base"], records["JAT"]
    assert base.heads is None
    assert jump.heads is not None and (jump.heads["heads"], jump.heads["vote_rate"]) == (2, 0.1)
    for record in (base, jump):
        assert record.examples == {"train": 24, "test": 36}
        assert record.all_examples == {"train": 48, "test": 36}
        assert record.steps == 1
        assert list(record.scores) == ["validation", "test", "lessons"]
        assert list(record.answers) == ["test"]
        assert list(record.scores["lessons"]) == ["1-steppingstonesfirst", "2-steppingstonesone"]
        names = ["accuracy", *(f"accuracy_{step}" for step in (1, 2, 3, 4))]
        assert list(record.scores["test"]) == names
    assert base.answers["test"]["right"] == jump.answers["test"]["right"]
    learnt = dict(read_json(runs[1] / "results.json") or {})["metrics"]["validation"]["accuracy"]
    assert base.scores["lessons"] == jump.scores["lessons"]
    assert base.scores["lessons"]["2-steppingstonesone"] == learnt


def test_a_finished_cell_is_read_and_not_run(
    plan: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell("2 layers", "JAT", 0)
    folder = cell_folder(tmp_path, cell)
    first = KIND.run_cell(cell, plan(), folder, False)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("jat_graph.training.trainer.TaskTrainer.train", refuse)
    assert KIND.run_cell(cell, plan(), folder, False) == first


def test_an_encoder_without_lessons_begins_with_the_questions(plan: Plans, tmp_path: Path) -> None:
    cell = Cell("2 layers", "base", 0)
    folder = cell_folder(tmp_path, cell)
    record = KIND.run_cell(cell, plan(**{"stepping-stones": {}}), folder, False)
    assert record.steps == 1
    options = read_json(folder / "results.json")["options"]  # type: ignore[index]
    assert options["from_scratch"] and options["task"] == "steppingstones"


def test_the_pretrained_model_has_its_lessons_with_options_of_its_own(
    plan: Plans, tmp_path: Path
) -> None:
    cell = Cell("pretrained", "JAT", 0)
    folder = cell_folder(tmp_path, cell)
    training = {"epochs": 1, "batch_size": 24, "pretrained": {"max_train_samples": 10}}
    asked = plan(training=training, tasks=["2 layers", "pretrained"])
    record = KIND.run_cell(cell, asked, folder, False)
    assert record.heads is not None and record.examples["train"] == 10
    lessons = tmp_path / "lessons" / "pretrained" / "seed-0"
    first = lessons / "attempt-1"
    runs = [first / "1-steppingstonesfirst", first / "2-steppingstonesone", folder]
    options = [dict(read_json(run / "results.json") or {})["options"] for run in runs]
    assert [one["model"] for one in options] == [asked.model, *(f"{r}/model" for r in runs[:2])]
    assert [one["depth"] for one in options] == [1, 2, 2]
    assert not any(one["from_scratch"] for one in options)
    assert {one["max_train_samples"] for one in options} == {10}
    assert not (lessons / "encoder").exists()


def test_an_encoder_that_fails_a_lesson_is_drawn_anew(plan: Plans, tmp_path: Path) -> None:
    failed = [{**LESSONS[0], "pass_mark": 1.0}, LESSONS[1]]
    asked = plan(**{"stepping-stones": {"lessons": failed, "attempts": 2}})
    cell = Cell("2 layers", "base", 0)
    KIND.run_cell(cell, asked, cell_folder(tmp_path, cell), False)
    place = tmp_path / "lessons" / "2-layers" / "seed-0"
    found = sorted(str(path.parent.relative_to(place)) for path in place.rglob("results.json"))
    assert found == [
        *("attempt-1/1-steppingstonesfirst", "attempt-2/1-steppingstonesfirst"),
        "attempt-2/2-steppingstonesone",
    ]
    first, second = (dict(read_json(place / run / "results.json") or {}) for run in found[:2])
    assert first["options"]["seed"] != second["options"]["seed"]
    assert first["metrics"] != second["metrics"] or first["history"] != second["history"]
    questions = dict(read_json(cell_folder(tmp_path, cell) / "results.json") or {})["options"]
    assert questions["model"] == str(place / found[2] / "model") and questions["seed"] == 0
    assert not KIND.lessons(cell, asked, tmp_path)


def test_what_passes_and_what_was_not_drawn_has_one_attempt(plan: Plans, tmp_path: Path) -> None:
    for mark, setting in ((0.01, "2 layers"), (1.0, "pretrained")):
        lessons = [{"task": "stepping-stones-one", "pass_mark": mark}]
        asked = plan(**{"stepping-stones": {"lessons": lessons, "attempts": 3}})
        cell = Cell(setting, "base", 0)
        KIND.run_cell(cell, asked, cell_folder(tmp_path, cell), False)
    places = sorted(path.name for path in tmp_path.glob("lessons/*/seed-0/attempt-*"))
    assert places == ["attempt-1", "attempt-1"]


def test_lessons_are_not_learnt_again_where_the_folder_was_moved(
    plan: Plans, tmp_path: Path
) -> None:
    first, second = (Cell("2 layers", arm, 0) for arm in ("base", "JAT"))
    KIND.run_cell(first, plan(), cell_folder(tmp_path / "here", first), False)
    (tmp_path / "here").rename(tmp_path / "there")
    assert not KIND.lessons(second, plan(), tmp_path / "there")
    lessons = sorted((tmp_path / "there" / "lessons").rglob("results.json"))
    before = [path.read_bytes() for path in lessons]
    record = KIND.run_cell(second, plan(), cell_folder(tmp_path / "there", second), False)
    assert record.steps == 1 and [path.read_bytes() for path in lessons] == before


def test_killed_between_lessons_a_cell_goes_on(
    plan: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell("2 layers", "JAT", 0)
    whole = KIND.run_cell(cell, plan(), cell_folder(tmp_path / "whole", cell), False)
    calls: list[str] = []

    def kill(options: Any, *rest: Any, **settings: Any) -> Any:
        calls.append(options.task)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train(options, *rest, **settings)

    monkeypatch.setattr(stepping_stones, "train", kill)
    folder = cell_folder(tmp_path / "cut", cell)
    with pytest.raises(KeyboardInterrupt):
        KIND.run_cell(cell, plan(), folder, False)
    (waiting,) = KIND.lessons(cell, plan(), tmp_path / "cut")
    assert waiting.task == "steppingstonesone"
    again = KIND.run_cell(cell, plan(), folder, False)
    assert calls == [
        *("steppingstonesfirst", "steppingstonesone"),
        *("steppingstonesone", "steppingstones"),
    ]
    assert (again.scores, again.answers) == (whole.scores, whole.answers)


def test_killed_while_the_encoder_is_written_a_cell_goes_on(
    plan: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell("2 layers", "base", 0)
    folder = cell_folder(tmp_path, cell)

    def kill(folder: Path, *_: object) -> None:
        (folder / "config.json").touch()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(stepping_stones, "write_model", kill)
        KIND.run_cell(cell, plan(), folder, False)
    assert KIND.run_cell(cell, plan(), folder, False).steps == 1


def test_cells_run_at_once_do_not_wait_for_the_same_lessons(plan: Plans, tmp_path: Path) -> None:
    left = list(plan(tasks=["1 layer", "2 layers"]).cells)
    first = left.pop(0)
    chosen = running._choose(left, [first], plan(tasks=["1 layer", "2 layers"]), tmp_path)
    assert (first.task, chosen.task) == ("1 layer", "2 layers")
    assert running._choose(left, [], plan(), tmp_path) == left[0]
    assert running._choose(left[:1], [first], plan(), tmp_path) == left[0]  # rather than nothing
    KIND.run_cell(first, plan(tasks=["1 layer"]), cell_folder(tmp_path, first), False)
    assert running._choose(left, [first], plan(), tmp_path) == chosen  # lessons before arms
    assert running._choose(left, [first, chosen], plan(), tmp_path) == left[0]


def test_other_lessons_in_the_folder_are_refused(plan: Plans, tmp_path: Path) -> None:
    first, second = (Cell("2 layers", arm, 0) for arm in ("base", "JAT"))
    KIND.run_cell(first, plan(), cell_folder(tmp_path, first), False)
    other = [{"task": "stepping-stones-first", "epochs": 2}, LESSONS[1]]
    changed = plan(**{"stepping-stones": {"lessons": other}})
    with pytest.raises(ValueError, match="holds a run with epochs=1, not 2"):
        KIND.run_cell(second, changed, cell_folder(tmp_path, second), False)


def test_a_whole_experiment_is_tabulated_and_drawn(plan: Plans, tmp_path: Path) -> None:
    lessons = {"lessons": [LESSONS[0], {**LESSONS[1], "pass_mark": 1.0}]}
    asked = plan(tasks=["1 layer"], x_label="steps", **{"stepping-stones": lessons})
    run_experiment(asked, tmp_path, progress=False)
    text = (tmp_path / "stones.md").read_text(encoding="utf-8")
    assert (
        "steps 1" in text
        and "- Encoders from scratch, which had lessons, texts made by the library" in text
    )
    assert "which leaves out 1 layer, seed 0." in text
