"""What the parts of a grid say about each other, checked once when it is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from jat_graph.lab.studies.arms import check_arm
from jat_graph.lab.studies.grid_fields import check_finite, check_keys, check_names, check_options
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.tasks import get_task

if TYPE_CHECKING:
    from jat_graph.lab.studies.grid import Grid


def check_grid(grid: Grid, where: str) -> None:
    """Refuse a grid that could not be run, or whose table would lack what it asks for."""
    if not re.fullmatch(r"\w[\w.-]*", grid.name):
        raise ValueError(f"{where}: name must be usable as a file name, got {grid.name!r}")
    check_names("tasks", grid.tasks, where)
    check_names("arms", [arm.name for arm in grid.arms], where)
    check_keys(grid.task_training, grid.tasks, f"{where}, [training]")
    check_options(grid.training, f"{where}, [training]")
    for task, options in grid.task_training.items():
        check_options(options, f"{where}, [training.{task}]")
    check_finite(grid.own, f"{where}, [{grid.kind}]")
    for arm in grid.arms:
        check_arm(grid, arm, f"{where}, arm {arm.name!r}")
    kind_of(grid.kind).check(grid, where)


def check_tasks(grid: Grid, where: str) -> None:
    """Refuse unknown tasks; the paper's numbers may be of tasks that a grid leaves out."""
    for name in (*grid.tasks, *_quoted_tasks(grid)):
        try:
            known = get_task(name).name
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if known != name:  # names are keys of other tables, too
            raise ValueError(f"{where}: task must be written {known!r}, got {name!r}")


def task_metrics(grid: Grid) -> Iterator[str]:
    """Yield the metrics of a grid's tasks."""
    for task in map(get_task, grid.tasks):
        yield from (task.primary_metric, *task.other_metrics)


def check_columns(grid: Grid, known: Iterable[str], where: str) -> None:
    """Refuse columns that a table could not have."""
    names = tuple(dict.fromkeys(known))
    for name in grid.columns:
        if name not in names:
            wanted = f"{', '.join(names)}, which its tasks have"
            raise ValueError(f"{where}: columns must be among {wanted}, got {name!r}")


def _quoted_tasks(grid: Grid) -> Iterator[str]:
    for row in grid.paper.scores.values():
        yield from row
