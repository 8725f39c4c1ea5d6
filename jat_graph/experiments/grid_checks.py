"""What the parts of a grid say about each other, checked once when it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from jat_graph.experiments.arms import check_arm
from jat_graph.experiments.curriculum import check_curriculum
from jat_graph.experiments.grid_fields import check_finite, check_keys, check_names, check_options
from jat_graph.experiments.grid_parts import SECONDS
from jat_graph.tasks import TaggingTask, get_task

if TYPE_CHECKING:
    from jat_graph.experiments.grid import Grid

# Which model a cell of the kind ``connections`` measures.
CONNECTED_MODELS = ("trained", "pretrained")

_OF_TASKS = ("train", "connections")  # the tasks of other kinds are settings


def check_grid(grid: Grid, where: str) -> None:
    """Refuse a grid that could not be run, or whose table would lack what it asks for.

    Args:
        grid: The grid.
        where: What messages call it.

    Raises:
        ValueError: With the first thing that does not fit.
    """
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
    if grid.kind in _OF_TASKS:
        _check_tasks(grid, where)
    if grid.kind == "train":
        _check_columns(grid, where)
    if grid.kind == "connections":
        _check_connections(grid, where)
    if grid.kind == "stepping-stones":
        check_curriculum(grid, where)


def _check_tasks(grid: Grid, where: str) -> None:
    """Refuse unknown tasks; the paper's numbers may be of tasks that a grid leaves out."""
    for name in (*grid.tasks, *_quoted_tasks(grid)):
        try:
            known = get_task(name).name
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if known != name:  # names are keys of other tables, too
            raise ValueError(f"{where}: task must be written {known!r}, got {name!r}")


def _quoted_tasks(grid: Grid) -> Iterator[str]:
    for row in grid.paper.scores.values():
        yield from row


def _check_columns(grid: Grid, where: str) -> None:
    known = {SECONDS: None}
    for task in map(get_task, grid.tasks):
        known |= dict.fromkeys((task.primary_metric, *task.other_metrics))
    for name in grid.columns:
        if name not in known:
            wanted = f"{', '.join(known)}, which its tasks have"
            raise ValueError(f"{where}: columns must be among {wanted}, got {name!r}")


def _check_connections(grid: Grid, where: str) -> None:
    own, wanted = grid.own, f"model = one of {', '.join(CONNECTED_MODELS)}"
    unknown = sorted(own.keys() - {"model"})
    if unknown or own.get("model", CONNECTED_MODELS[0]) not in CONNECTED_MODELS:
        got = unknown[0] if unknown else f"model = {own['model']!r}"
        raise ValueError(f"{where}: [connections] must say {wanted}, got {got}")
    for name in grid.tasks:
        if not isinstance(get_task(name), TaggingTask):
            kind = "tasks of connections must be of named entities, as wnut17"
            raise ValueError(f"{where}: {kind}, got {name!r}")
    for arm in grid.arms:
        if arm.heads == "triplet":
            raise ValueError(
                f"{where}: arm {arm.name!r} has triplet heads, which have no links to measure"
            )
