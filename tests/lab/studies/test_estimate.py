"""How long a grid takes, before it is run."""

import json
from pathlib import Path

import pytest

from jat_graph.lab.studies import estimate_cells
from jat_graph.lab.studies.curriculum import KIND
from jat_graph.lab.studies.kinds import KINDS
from jat_graph.lab.studies.records import Store
from jat_graph.lab.studies.timing import time_run
from tests.lab.studies.conftest import Plans
from tests.lab.studies.support import CONTENT, made_up
from tests.lab.studies.test_fine_tuning_trials import TUNED


@pytest.fixture
def untimed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every run take ten seconds."""
    monkeypatch.setattr("jat_graph.lab.studies.kinds.time_run", lambda options, heads: 10.0)


@pytest.mark.usefixtures("untimed")
def test_finished_cells_say_how_long_the_others_take(plans: Plans, tmp_path: Path) -> None:
    Store(plans(), tmp_path).save(made_up(seconds=4.0))
    before = sorted(tmp_path.rglob("*"))
    base, jat = estimate_cells(plans(), tmp_path)
    assert (base.seeds, base.finished, base.seconds, base.source) == (
        (1,),
        1,
        4.0,
        "finished cells",
    )
    assert (jat.seeds, jat.finished, jat.seconds, jat.source) == ((0, 1), 0, 10.0, "timed steps")
    assert (base.total, jat.total) == (4.0, 20.0)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.usefixtures("untimed")
def test_finished_cells_of_other_parts_count(plans: Plans, tmp_path: Path) -> None:
    Store(plans(), tmp_path).save(made_up(seconds=4.0))
    (base,) = estimate_cells(plans(), tmp_path, [made_up(seed=1).cell])
    assert (base.seeds, base.finished, base.seconds) == ((1,), 0, 4.0)


@pytest.mark.usefixtures("untimed")
def test_trials_count_once(plans: Plans, tmp_path: Path) -> None:
    base, jat, efficient = estimate_cells(plans(**TUNED), tmp_path / "none")
    assert (base.trials, jat.trials, efficient.trials) == (0, 2, 0)
    assert (jat.lessons, jat.total) == (20.0, 40.0)
    assert not (tmp_path / "none").exists()


@pytest.mark.usefixtures("untimed")
def test_lessons_count_once_for_all_arms(
    plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jat_graph.lab.studies.stepping_stones.time_run", lambda *_: 10.0)
    lessons = {"lessons": [{"task": "stepping-stones-one"}, {"task": "stepping-stones-both"}]}
    plan = plans(kind="stepping-stones", tasks=["1 layer", "pretrained"], **{KIND: lessons})
    found = {(entry.task, entry.arm): entry for entry in estimate_cells(plan, tmp_path)}
    for task in ("1 layer", "pretrained"):
        assert [found[task, arm].total for arm in ("base", "JAT")] == [2 * 30.0, 2 * 10.0]
    waiting = KINDS[KIND].lessons(plan.cells[0], plan, tmp_path)
    for run in waiting:  # as a finished run leaves them
        Path(run.output_dir).mkdir(parents=True)
        scores = {"validation": {"accuracy": 1.0, "f1": 1.0}}
        written = json.dumps({"options": run.to_dict(), "metrics": scores})
        (Path(run.output_dir) / "results.json").write_text(written, encoding="utf-8")
    found = {(entry.task, entry.arm): entry for entry in estimate_cells(plan, tmp_path)}
    assert found["1 layer", "base"].total == 30.0 + 10.0


def test_runs_of_an_encoder_from_scratch_are_timed(plans: Plans, tmp_path: Path) -> None:
    plan = plans(kind=KIND, tasks=["2 layers"], **{KIND: {"lessons": [{"task": f"{KIND}-first"}]}})
    assert (KINDS[KIND].time(plan.cells[1], plan) or 0) > 0
    (lesson,) = KINDS[KIND].lessons(plan.cells[0], plan, tmp_path)
    assert lesson.depth == 1 and (KINDS[KIND].time(plan.cells[0], plan, lesson) or 0) > 0


def test_a_pretrained_model_that_is_only_measured_is_not_timed(
    plans: Plans, tmp_path: Path
) -> None:
    kind = {"kind": "connections", "tasks": ["wnut17"], "connections": {"model": "pretrained"}}
    assert {entry.total for entry in estimate_cells(plans(**kind), tmp_path)} == {None}
    Store(plans(**kind), tmp_path).save(made_up("wnut17", steps=0))
    base, _ = estimate_cells(plans(**kind), tmp_path)
    assert (base.seeds, base.finished, base.total) == ((1,), 1, None)


def test_a_few_steps_are_timed(plans: Plans) -> None:
    plan = plans(training={**CONTENT["training"], "epochs": 2, "mixed_precision": "bf16"})
    cell = plan.cells[1]
    once = time_run(plan.options(cell, Path("nowhere")), plan.heads(cell))
    assert 0 < once < 60
