"""Where the kinds of grids are."""

import pytest

from jat_graph.lab.studies import grid_names, load_grid
from jat_graph.lab.studies.kinds import KINDS, Kind


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_says_how_a_grid_is_checked_and_a_cell_is_run(name: str) -> None:
    kind = type(KINDS[name])
    assert issubclass(kind, Kind)
    assert kind.check is not Kind.check and kind.run_cell is not Kind.run_cell


def test_a_kind_is_there_for_a_grid_that_comes_with_the_library() -> None:
    assert {load_grid(name).kind for name in grid_names()} == set(KINDS)
