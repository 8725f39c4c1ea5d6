"""What may stand in one results file, and what may not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jat_graph.lab.studies import Cell, Plan, Results
from jat_graph.lab.studies.records import (
    check_results,
    describe_cell,
    describe_trial,
    plan_fingerprint,
)
from tests.lab.studies.support import CONTENT, made_up, small_grid

TUNED = {
    "tuning": {"thresholds": [4.0]},
    "arms": [
        {"name": "base"},
        {"name": "tuned", "heads": "paper", "tune": True},
        {"name": "borrowed", "heads": "efficient", "tune": "tuned"},
    ],
}


def results(plan: Plan, **fields: Any) -> Results:
    found = Results(
        grid=plan.grid,
        fingerprint=plan_fingerprint(plan),
        model=plan.model_name,
        data=plan.data_name,
        versions={},
        machine={},
        records=(made_up(), made_up(arm="JAT")),
    )
    return replace(found, **fields)


def plan(model: str = "org/model", data: str | None = None, **changes: Any) -> Plan:
    return Plan(small_grid(**changes), model, None if data is None else Path(data))


def test_a_grid_may_grow_and_be_told_better() -> None:
    arms = [*CONTENT["arms"], {"name": "more", "heads": "paper"}]
    grown = plan(tasks=["cola", "rte"], seeds=4, arms=arms, title="Else", paper={"base": {}})
    check_results(results(plan()), grown, "here")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "else"}, "with grid='small', not 'else'"),
        ({"model": "org/else"}, "with model='org/model', not 'org/else'"),
        ({"data": "/else/data"}, "with data=None, not 'data'"),
        ({"training": {"epochs": 3}}, "with options.batch_size=16, not None"),
        (
            {"training": {**CONTENT["training"], "cola": {"epochs": 3}}},
            "with options.epochs=1, not 3",
        ),
        (
            {"arms": [{"name": "base"}, {"name": "JAT", "heads": "released"}]},
            "with heads='paper', not 'released'",
        ),
        (
            {"arms": [CONTENT["arms"][0], {**CONTENT["arms"][1], "settings": {"heads": 2}}]},
            "with settings.heads='6/12', not 2",
        ),
        ({"arms": [{"name": "base"}]}, "holds the cell cola, JAT, seed 0, which this grid lacks"),
        ({"tasks": ["rte"]}, "holds the cell cola, base, seed 0, which this grid lacks"),
    ],
)
def test_other_results_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        check_results(results(plan()), plan(**changes), "here")
    assert str(caught.value).startswith("here holds ")
    assert str(caught.value).endswith("name another folder")


def test_fewer_seeds_than_there_are_is_refused() -> None:
    more = results(plan(), records=(made_up(seed=1),))
    wanted = "which this grid lacks: ask for --seeds 2 or more, or name another folder"
    with pytest.raises(ValueError, match=f"holds the cell cola, base, seed 1, {wanted}"):
        check_results(more, plan(seeds=1), "here")


LESSONS = [{"task": "stepping-stones-one"}]


def test_a_kinds_own_table_counts() -> None:
    kind: dict[str, Any] = {"kind": "stepping-stones", "tasks": ["1 layer"]}
    old, new = (plan(**kind, **{"stepping-stones": own}) for own in ({}, {"lessons": LESSONS}))
    records = (made_up(task="1 layer"),)
    with pytest.raises(ValueError, match=r"with stepping-stones\.lessons=None, not \["):
        check_results(results(old, records=records), new, "here")


def test_a_header_without_cells_holds_nothing_to_lose() -> None:
    check_results(results(plan(), records=()), plan("org/else", "/else/data"), "here")


def test_times_are_not_taken_from_cells_that_were_not_run_for_them() -> None:
    old, new = plan(), plan(columns=["seconds"])
    with pytest.raises(ValueError, match="with timed=None, not True"):
        check_results(results(old), new, "here")


def test_two_models_of_one_name_differ(tmp_path: Path) -> None:
    weights = tmp_path / "model" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"1")
    mine = plan(str(weights.parent))
    found = results(mine)
    check_results(found, mine, "here")
    weights.write_bytes(b"2")
    with pytest.raises(
        ValueError, match=f"holds results with weights of .*/model='{found.fingerprint}'"
    ):
        check_results(found, mine, "here")


def test_weights_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"1")
    first = plan_fingerprint(plan(str(tmp_path)))
    monkeypatch.setattr(Path, "open", None)
    assert plan_fingerprint(plan(str(tmp_path))) == first


def test_another_threshold_to_try_leaves_the_trials_as_they_are() -> None:
    trial = Cell("cola", "tuned", 9999)
    more = small_grid(**{**TUNED, "tuning": {"thresholds": [4.0, 6.0]}})
    assert describe_trial(small_grid(**TUNED), trial) == describe_trial(more, trial)
    other = small_grid(**{**TUNED, "tuning": {"thresholds": [4.0], "held_out": 0.2}})
    assert describe_trial(small_grid(**TUNED), trial) != describe_trial(other, trial)


def test_triplets_beside_jump_heads_count() -> None:
    arms = [{"name": "JAT", "heads": "paper"}, {"name": "both", "heads": "paper", "triplets": {}}]
    grid = plan(arms=arms).grid
    alone, both = (describe_cell(grid, Cell("cola", arm, 0)) for arm in ("JAT", "both"))
    assert both == alone | {"triplets": {}} and "triplets" not in alone


def test_a_borrowed_threshold_depends_on_the_arm_it_is_from() -> None:
    grid = small_grid(**TUNED)
    borrowed = describe_cell(grid, Cell("cola", "borrowed", 0))
    assert borrowed["tuned as"]["heads"] == "paper"
    assert borrowed["tuning"] == {"thresholds": [4.0], "held_out": 0.1}
    base = describe_cell(grid, Cell("cola", "base", 0))
    assert base["tuning"] is None and "tuned as" not in base
