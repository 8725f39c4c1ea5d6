"""What one kind of grid does in another way than the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.costs import Costs
from jat_graph.lab.studies.curves import Curves
from jat_graph.lab.studies.grid import KIND_CHECKS, Grid, task_of
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.timing import Job, TrainingJob
from jat_graph.tasks import get_task
from jat_graph.training.options import TrainingOptions

# By name; the module of each enters it, and the package imports them all.
KINDS: dict[str, Kind] = {}


@dataclass(frozen=True)
class Caption:
    """What has to be known to read a table, beside what all tables say."""

    models: str  # that were really used
    data: str  # likewise
    trained: str = "cells above"  # what the hours of training were for
    remarks: tuple[str, ...] = ()  # sentences


class Kind:
    """How grids of a kind are checked, how their cells are run and timed, and how results are read.

    What a kind says nothing about is as where each cell trains the plan's model on its task.
    """

    # Whether cells make their models: none is named.
    from_scratch = False
    # Whether cells read the data of their tasks; others make their own.
    reads_data = True
    # Whether a cell's task names its model, so that cells of a task are more alike than of an arm.
    task_is_model = False

    def check(self, grid: Grid, where: str) -> None:
        """Refuse a grid that could not be run, or whose table would lack what it asks for."""
        raise NotImplementedError

    def check_plan(self, plan: Plan) -> None:
        """Refuse a model that some arm does not fit, before anything is run."""
        plan.check()

    def run_cell(self, cell: Cell, plan: Plan, folder: Path, progress: bool) -> Record:
        """Run a cell; what was interrupted goes on. Weights may stay in the folder's ``model/``."""
        raise NotImplementedError

    def job(
        self, cell: Cell, plan: Plan, scratch: Path, lesson: TrainingOptions | None = None
    ) -> Job | None:
        """What a cell would train, or a lesson of it, to be timed; None where nothing is."""
        return TrainingJob(lesson or plan.options(cell, scratch), plan.heads(cell))

    def lessons(self, cell: Cell, plan: Plan, output: Path) -> list[TrainingOptions]:
        """The trainings that a cell waits for and shares with others."""
        return []

    def shown(self, record: Record) -> Mapping[str, Iterable[str]]:
        """The metrics of each split that a table has, if its grid names none: the primary one."""
        return dict.fromkeys(record.scores, (get_task(record.task).primary_metric,))

    def asked(self, grid: Grid, task: str) -> str:
        """The metric that a question is about: the first that a grid shows, or the primary one."""
        found = task_of(grid, task)
        known = (found.primary_metric, *found.other_metrics)
        return next((name for name in grid.columns if name in known), found.primary_metric)

    def curves(self, results: Results) -> Mapping[str, Curves]:
        """How the arms did on the way, by what is measured; nothing where only the end counts."""
        return {}

    def costs(self, results: Results) -> Mapping[str, Costs]:
        """What models of several depths took, by what is measured; nothing where all are one."""
        return {}

    def caption(self, results: Results) -> Caption:
        """What has to be known to read a table."""
        data = "data by name" if results.data is None else f"data folder {results.data!r}"
        return Caption(f"Model {results.model}", data)


def enter_kind(name: str, kind: Kind) -> None:
    """Let grids be of a kind."""
    KINDS[name], KIND_CHECKS[name] = kind, kind.check


def kind_of(grid: Grid) -> Kind:
    """The kind of a grid."""
    return KINDS[grid.kind]
