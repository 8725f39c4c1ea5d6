"""How long a grid takes, before it is run."""

import json
import math
from pathlib import Path

import pytest

from jat_graph.lab.studies import Estimate, estimate, estimate_cells, timing
from jat_graph.lab.studies.curriculum import KIND
from jat_graph.lab.studies.estimate import describe_total
from jat_graph.lab.studies.kinds import KINDS
from jat_graph.lab.studies.records import Store
from jat_graph.lab.studies.timing import STEP, TrainingJob
from tests.lab.studies.conftest import Plans
from tests.lab.studies.support import CONTENT, made_up
from tests.lab.studies.test_fine_tuning_trials import TUNED
from tests.training.support import JUMP, Options

LESSONS = {"lessons": [{"task": f"{KIND}-one"}, {"task": f"{KIND}-both"}]}


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
    assert (jat.seeds, jat.finished, jat.source) == ((0, 1), 0, "timed steps")
    assert jat.seconds is not None and jat.seconds > 0
    assert (base.total, jat.total) == (4.0, 2 * jat.seconds)
    assert sorted(tmp_path.rglob("*")) == before


def test_finished_cells_of_other_parts_count(plans: Plans, tmp_path: Path) -> None:
    Store(plans(), tmp_path).save(made_up(seconds=4.0))
    (base,) = estimate_cells(plans(), tmp_path, [made_up(seed=1).cell])
    assert (base.seeds, base.finished, base.seconds) == ((1,), 0, 4.0)


def test_trials_count_once(plans: Plans, tmp_path: Path) -> None:
    base, jat, efficient = estimate_cells(plans(**TUNED), tmp_path / "none")
    assert (base.trials, jat.trials, efficient.trials) == (0, 2, 0)
    assert base.lessons == efficient.lessons == 0 < jat.lessons
    assert jat.seconds is not None
    assert jat.total == jat.lessons + 2 * jat.seconds
    assert not (tmp_path / "none").exists()


def test_lessons_count_once_for_all_arms(
    plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "READING", math.inf)  # however busy the machine is
    plan = plans(kind=KIND, tasks=["1 layer", "pretrained"], **{KIND: LESSONS})
    found = {(entry.task, entry.arm): entry for entry in estimate_cells(plan, tmp_path)}
    for task in ("1 layer", "pretrained"):
        assert [found[task, arm].trials for arm in ("base", "JAT")] == [4, 0]
        assert found[task, "base"].lessons > 0 == found[task, "JAT"].lessons
    waiting = KINDS[KIND].lessons(plan.cells[0], plan, tmp_path)
    for run in waiting:  # as a finished run leaves them
        Path(run.output_dir).mkdir(parents=True)
        scores = {"validation": {"accuracy": 1.0, "f1": 1.0}}
        written = json.dumps({"options": run.to_dict(), "metrics": scores})
        (Path(run.output_dir) / "results.json").write_text(written, encoding="utf-8")
    left = {(entry.task, entry.arm): entry for entry in estimate_cells(plan, tmp_path)}
    assert left["1 layer", "base"].trials == 2


def test_what_is_not_timed_is_guessed_by_its_tokens(
    plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = [*CONTENT["arms"], {"name": "longer", "options": {"epochs": 3}}]
    monkeypatch.setattr(estimate, "TIMING", 0.0)
    base, jat, more = estimate_cells(plans(arms=longer), tmp_path)
    assert [e.source for e in (base, jat, more)] == ["timed steps", *["like cola, base"] * 2]
    assert jat.seconds == pytest.approx(base.seconds)
    assert more.seconds == pytest.approx(3 * (base.seconds or 0))
    monkeypatch.setattr(estimate, "READING", 0.0)
    base, jat, more = estimate_cells(plans(arms=longer), tmp_path)
    assert [e.total is None for e in (base, jat, more)] == [False, True, True]
    assert "2 arms of which nothing is known" in describe_total([base, jat, more])


def test_a_slow_start_leaves_less_time(plans: Plans, tmp_path: Path) -> None:
    quick = estimate_cells(plans(), tmp_path, waited=estimate.STARTING)
    slow = estimate_cells(plans(), tmp_path, waited=estimate.STARTING + estimate.READING)
    assert "nothing" not in {entry.source for entry in quick}
    assert [entry.source for entry in slow] == ["timed steps", "nothing"]


def test_runs_of_an_encoder_from_scratch_are_timed(plans: Plans, tmp_path: Path) -> None:
    plan = plans(kind=KIND, tasks=["2 layers"], **{KIND: {"lessons": [{"task": f"{KIND}-first"}]}})
    kind = KINDS[KIND]
    (lesson,) = kind.lessons(plan.cells[0], plan, tmp_path / "none")
    assert lesson.depth == 1
    for run in (None, lesson):
        job = kind.job(plan.cells[1], plan, tmp_path, run)
        assert job is not None and job.size > 0 and job.time(60.0).seconds > 0


def test_a_pretrained_model_that_is_only_measured_is_not_timed(
    plans: Plans, tmp_path: Path
) -> None:
    kind = {"kind": "connections", "tasks": ["wnut17"], "connections": {"model": "pretrained"}}
    assert {entry.total for entry in estimate_cells(plans(**kind), tmp_path)} == {None}
    Store(plans(**kind), tmp_path).save(made_up("wnut17", steps=0))
    base, _ = estimate_cells(plans(**kind), tmp_path)
    assert (base.seeds, base.finished, base.total) == ((1,), 1, None)


def test_a_job_is_as_large_as_its_data(options: Options) -> None:
    every, half = (TrainingJob(options(max_train_samples=n), JUMP) for n in (None, 24))
    assert half.size < every.size < 3 * half.size
    assert TrainingJob(options(epochs=6), JUMP).size == 2 * every.size
    assert TrainingJob(options(depth=1), None).size == every.size / 2  # of two layers
    assert 0 < every.time(60.0).seconds < 60


def test_steps_and_batches_of_similar_length_count(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = TrainingJob(options(max_train_samples=32), JUMP)  # 3 epochs of 2 batches of 16
    assert TrainingJob(options(max_train_samples=32, group_by_length=True), JUMP).size < job.size
    size = job.size
    monkeypatch.setattr(timing, "STEP", 0)
    assert size == job.size + 6 * STEP


def test_all_that_is_left_is_told_in_words() -> None:
    one = Estimate("cola", "base", (0, 1), 0, 2, 60.0, "timed steps", 120.0, 3 * 2**29)
    assert describe_total([one]) == (
        "About 4 min of training here, of which 2 min are shared, one after another; loading and "
        "measuring come on top. A run takes about 1.5 GiB of memory."
    )
    done = Estimate("cola", "base", (), 2, 0, 60.0, "finished cells")
    assert describe_total([done]) == "Nothing is left to do."
