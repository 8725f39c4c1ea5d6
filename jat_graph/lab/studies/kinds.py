"""What one kind of grid does in another way than the others, and where each kind is."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.lab.studies.examples import count_examples
from jat_graph.lab.studies.timing import time_run
from jat_graph.tasks import get_task

if TYPE_CHECKING:
    from jat_graph.lab.studies.cells import Cell, Plan
    from jat_graph.lab.studies.grid import Grid
    from jat_graph.lab.studies.results import Record, Results
    from jat_graph.lab.studies.sums import Measure
    from jat_graph.training.options import TrainingOptions

# The module of each kind, which calls it ``KIND``; it is imported where the kind is asked for.
KINDS = {
    "train": "jat_graph.lab.studies.fine_tuning",
    "connections": "jat_graph.lab.studies.connections",
    "stepping-stones": "jat_graph.lab.studies.stepping_stones",
}


class Kind:
    """How grids of a kind are checked, how their cells are run and timed, and how results are read.

    What a kind says nothing about is as where each cell trains the plan's model on its task.
    """

    # In a caption after "hours of training for the".
    trained = "cells above"

    def check(self, grid: Grid, where: str) -> None:
        """Refuse a grid that could not be run, or whose table would lack what it asks for."""
        raise NotImplementedError

    def run_cell(self, cell: Cell, plan: Plan, folder: Path, progress: bool) -> Record:
        """Run a cell; what was interrupted goes on."""
        raise NotImplementedError

    def check_data(self, cell: Cell, plan: Plan) -> None:
        """Refuse data that a cell cannot read, which are those of all cells of its task."""
        count_examples(plan.options(cell, Path("output")))

    def own_shape(self, task: str) -> tuple[int, int] | None:
        """Return layers and heads of the model of a task; None if it is the plan's."""
        return None

    def time_cell(self, cell: Cell, plan: Plan) -> float | None:
        """Time a few steps of a cell, and return the seconds that its training would take."""
        return time_run(plan.options(cell, Path("output")), plan.heads(cell))

    def waiting_lessons(self, cell: Cell, plan: Plan, output: Path) -> list[TrainingOptions]:
        """Return the trainings that a cell waits for and shares with others."""
        return []

    def time_lesson(self, cell: Cell, plan: Plan, lesson: TrainingOptions) -> float:
        """Time a few steps of a training that cells share, and return the seconds of all of it."""
        raise NotImplementedError

    def primary_metric(self, task: str) -> str | None:
        """Return the metric that a table has where its grid names none; None for all."""
        return None

    def is_reported(self, split: str) -> bool:
        """Tell whether a table has the scores of a split."""
        return True

    def measure(self, task: str) -> Measure | None:
        """Return what compares answers with what is right; None if nothing does."""
        return getattr(get_task(task), "measure", None)

    def may_compare(self, grid: Grid, base: Record) -> bool:
        """Tell whether a base is good enough that arms may be compared with it."""
        return True

    def model_and_data(self, results: Results) -> tuple[str, str]:
        """Name the models and the data that were really used."""
        data = "data by name" if results.data is None else f"data folder {results.data!r}"
        return f"Model {results.model}", data

    def remarks(self, results: Results) -> list[str]:
        """Say what else has to be known to read the table, in sentences."""
        return []


def kind_of(name: str) -> Kind:
    """Return the kind of a grid."""
    found: Kind = importlib.import_module(KINDS[name]).KIND
    return found
