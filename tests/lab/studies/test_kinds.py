"""Where the kinds of grids are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.lab.grids import ON_A_MODEL, OWN_MODELS
from jat_graph.lab.studies import Record, grid_names, load_grid
from jat_graph.lab.studies.grid import task_of
from jat_graph.lab.studies.kinds import KINDS, Kind

# Kinds whose grids have settings, and the task of all of these.
OF_ONE_TASK = {
    "stepping-stones": "steppingstones",
    "partners": "partners",
    "far-recall": "farrecall",
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_says_how_a_grid_is_checked_and_a_cell_is_run(name: str) -> None:
    kind = type(KINDS[name])
    assert issubclass(kind, Kind)
    assert kind.check is not Kind.check and kind.run_cell is not Kind.run_cell


@given(
    kind=st.sampled_from(list(KINDS)),
    metrics=st.lists(st.text("abc_12", min_size=1), unique=True),
)
def test_a_table_has_nothing_that_was_not_scored(kind: str, metrics: list[str]) -> None:
    task = "2 layers" if kind in OF_ONE_TASK else "wnut17"
    scores = {**dict.fromkeys(metrics, 0.5), "f1": 0.5}
    record = Record(task, "base", 0, dict.fromkeys(("validation", "test", "layer 1"), scores))
    shown = KINDS[kind].shown(record)
    one = kind in OF_ONE_TASK or kind == "scratch"  # what is shown is of one split
    assert shown and all(set(names) <= set(scores) for names in shown.values())
    assert set(shown) == ({"test"} if one else set(record.scores))
    primary = kind in ("train", "scratch") or not metrics
    assert all((list(names) == ["f1"]) == primary for names in shown.values())


@pytest.mark.parametrize("name", grid_names())
def test_the_cells_of_every_grid_are_trained_on_a_task(name: str) -> None:
    grid = load_grid(name)
    found = [task_of(grid, task).name for task in grid.tasks]
    one = OF_ONE_TASK.get(grid.kind)
    assert found == ([one] * len(grid.tasks) if one else list(grid.tasks))


def test_a_kind_is_there_for_a_grid_that_comes_with_the_library() -> None:
    assert {load_grid(name).kind for name in grid_names()} == set(KINDS)


def test_the_kinds_that_need_a_model_are_those_that_make_none() -> None:
    assert {name for name, kind in KINDS.items() if not kind.from_scratch} == set(ON_A_MODEL)
    assert {name for name, kind in KINDS.items() if kind.from_scratch} == set(OWN_MODELS)
