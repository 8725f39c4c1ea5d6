"""Cells in processes of their own."""

import os
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest

from jat_graph.lab.studies import Cell, run_experiment, running
from jat_graph.lab.studies.running import Outcome, run_cells
from tests.lab.studies.conftest import Plans
from tests.lab.studies.test_running import same


def test_processes_give_what_one_gives(plans: Plans, tmp_path: Path) -> None:
    one = run_experiment(plans(seeds=1), tmp_path / "one", progress=False)
    two = run_experiment(plans(seeds=1), tmp_path / "two", jobs=2, progress=False)
    assert same(one, two)
    assert len(two.records) == 2


def run_or_die(cell: Cell, *_: object) -> Outcome:
    """End the process of one of the cells, as the system does where memory runs out."""
    if (cell.arm, cell.seed) == ("base", 0):
        os._exit(1)
    return Outcome(cell)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked, to be quick")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_killed_takes_no_other_cell_with_it(
    plans: Plans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "run_one", run_or_die)
    monkeypatch.setattr(running, "get_context", lambda _: get_context("fork"))
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    found = {o.cell: o for o in run_cells(plans().cells, plans(), tmp_path, jobs=2)}
    killed, *others = (found[cell] for cell in plans().cells)
    assert str(killed) == "failed, its process was killed, as happens where memory runs out"
    assert others == [Outcome(cell) for cell in plans().cells[1:]]
