"""A grid: which arms an experiment trains on which tasks, and how often; one TOML file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from jat_graph.checks.numbers import check_inside, check_integer
from jat_graph.lab.grids import grid_path, read_toml
from jat_graph.lab.parsing import STRICT, check_finite, check_keys, check_table, parse
from jat_graph.lab.studies.arms import GridArm, check_arm, check_options
from jat_graph.tasks import TASK_NAMES, Task, get_task
from jat_graph.tasks.tables import plain_name

# What a grid is trained with where it says nothing: weights are not chosen on the dev set that is
# then reported.
DEFAULT_TRAINING: Mapping[str, Any] = {"select_best": False}

# ρ is chosen by runs of this seed; those that are reported have seeds below.
TUNING_SEED = 9999

# How grids of each kind are checked; the module of a kind enters it, see :mod:`kinds`.
KIND_CHECKS: dict[str, Callable[[Grid, str], None]] = {}

# Fields of a grid that its file has under another name.
_NOT_IN_FILES = ("task_training", "own", "content")


@dataclass(frozen=True)
class Tuning:
    """How ρ is chosen.

    Args:
        thresholds: The values tried.
        held_out: Share of the training data that they are scored on. (default: 0.1)
    """

    __pydantic_config__ = STRICT

    thresholds: tuple[float, ...]
    held_out: float = 0.1


@dataclass(frozen=True)
class Paper:
    """Numbers that the paper prints, in its units.

    Args:
        model: The paper's model. (default: "")
        scores: ``scores[arm][task]``: a number, or numbers by metric. (default: nothing)
        quoted: Names in ``scores`` that are no arms: rows of a table that are not run.
            (default: none)
    """

    __pydantic_config__ = STRICT

    model: str = ""
    scores: Mapping[str, Mapping[str, float | Mapping[str, float]]] = field(default_factory=dict)
    quoted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """What a grid asks, written down before it is run.

    Args:
        least: How much better than the base an arm has to be, in points where the measure is a
            share, else in its unit; or that by task.
        family: Comparisons whose p-values are corrected together, those of other grids and those
            that are not run yet too. (default: None, all arms but the base on all its tasks, which
            is the least)
        tasks: What it asks of. (default: none, which means all of the grid's)
    """

    __pydantic_config__ = STRICT

    least: float | Mapping[str, float]
    family: int | None = None
    tasks: tuple[str, ...] = ()

    def least_of(self, task: str) -> float:
        """Return how much better an arm has to be on a task."""
        return self.least[task] if isinstance(self.least, Mapping) else self.least


@dataclass(frozen=True)
class Grid:
    """An experiment, as its TOML file describes it.

    Args:
        name: What the command calls it.
        title: What it asks, in a few words.
        kind: How a cell is run, see :class:`jat_graph.lab.studies.kinds.Kind`.
        tasks: The tasks; where the kind has the name of one, the settings.
        arms: The arms; the first is the base.
        seeds: Number of seeds, 0, 1, 2 …; or the seeds themselves. (default: 3)
        source: Where the paper has it. (default: "")
        budget: The time that the grid was made for, in a sentence. (default: "")
        columns: Metrics that a table shows. (default: none, which means the primary ones)
        mean: Whether there is a mean over the tasks. (default: None, where each has one metric)
        x_label: What the arms' ``x`` means. (default: "")
        training: Options of all runs. (default: nothing)
        task_training: Options of one task's runs, by task. (default: nothing)
        tuning: How ρ is chosen. (default: None, not at all)
        paper: The paper's numbers. (default: none)
        question: What would be a yes. (default: None, nothing is asked)
        own: The table that is named after the kind, which alone reads it. (default: nothing)
        content: The whole file.
    """

    __pydantic_config__ = STRICT

    name: str
    title: str
    kind: str
    tasks: tuple[str, ...]
    arms: tuple[GridArm, ...]
    seeds: int | tuple[int, ...] = 3
    source: str = ""
    budget: str = ""
    columns: tuple[str, ...] = ()
    mean: bool | None = None
    x_label: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    task_training: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tuning: Tuning | None = None
    paper: Paper = field(default_factory=Paper)
    question: Question | None = None
    own: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> GridArm:
        """The arm that the others are compared with."""
        return self.arms[0]

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of an arm's runs on a task, in the order of the runs."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else self.seeds

    def arm(self, name: str) -> GridArm:
        """Return an arm.

        Args:
            name: As in the file.

        Returns:
            The one of this name.

        Raises:
            ValueError: If there is none.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        known = ", ".join(arm.name for arm in self.arms)
        raise ValueError(f"arm of grid {self.name!r} must be one of {known}, got {name!r}")

    def options(self, task: str, arm: GridArm) -> dict[str, Any]:
        """Return what the grid says about the runs of an arm on a task.

        Args:
            task: Name of one of its tasks.
            arm: One of its arms.

        Returns:
            Fields of :class:`jat_graph.training.TrainingOptions` by name; the arm's own come before
            the task's, and these before the grid's.
        """
        own = self.task_training.get(task, {})
        return {**DEFAULT_TRAINING, **self.training, **own, **arm.options}

    def with_seeds(self, seeds: int) -> Grid:
        """Return the same grid with another number of seeds.

        Args:
            seeds: The number.

        Returns:
            The grid.

        Raises:
            ValueError: If the number does not fit.
        """
        return Grid.from_dict({**self.content, "seeds": seeds})

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the TOML file, as JSON types; :meth:`from_dict` reads it."""
        return deepcopy(dict(self.content))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], where: str | None = None) -> Grid:
        """Check the content of a grid's file.

        Args:
            content: The content of the TOML file.
            where: What messages call it. (default: None, by its name)

        Returns:
            The grid.

        Raises:
            ValueError: If something is missing, unknown, or does not fit.
        """
        where = where or f"grid {content.get('name')!r}"
        grid = parse(cls, _fields(content, where), where)
        _check_grid(grid, where)
        return grid


def _fields(content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of a grid, some of which its file has side by side in one table."""
    kind = content.get("kind", "train")
    if kind not in KIND_CHECKS:
        raise ValueError(f"{where}: kind must be one of {', '.join(KIND_CHECKS)}, got {kind!r}")
    known = [entry.name for entry in fields(Grid) if entry.name not in _NOT_IN_FILES]
    check_keys(content, (*known, *((kind,) if kind != "train" else ())), where)
    training = check_table(content, "training", where)
    # A table in it is for the task of its name, but one is an option itself.
    of_tasks = {k for k, v in training.items() if isinstance(v, Mapping) and k != "trainer"}
    paper = dict(check_table(content, "paper", where))
    said = {name: paper.pop(name) for name in ("model", "quoted") if name in paper}
    return {name: content[name] for name in known if name in content} | {
        "kind": kind,
        "training": {k: v for k, v in training.items() if k not in of_tasks},
        "task_training": {k: v for k, v in training.items() if k in of_tasks},
        "paper": said | {"scores": paper},
        "own": check_table(content, kind, where),
        "content": content,
    }


def _check_grid(grid: Grid, where: str) -> None:
    """Refuse a grid that could not be run, or whose table would lack what it asks for."""
    if not re.fullmatch(r"\w[\w.-]*", grid.name):
        raise ValueError(f"{where}: name must be usable as a file name, got {grid.name!r}")
    if not grid.title.strip():
        raise ValueError(f"{where}: title must be a text, got {grid.title!r}")
    if isinstance(grid.seeds, int):
        check_integer(f"{where}: seeds", grid.seeds, least=1, below=TUNING_SEED)
    check_seeds(grid.all_seeds, f"{where}: ")
    for seed in grid.all_seeds:
        check_integer(f"{where}: seeds", seed, least=0, below=TUNING_SEED)
    _check_names("tasks", grid.tasks, where)
    _check_names("arms", [arm.name for arm in grid.arms], where)
    check_keys(grid.task_training, grid.tasks, f"{where}, [training]")
    check_options(grid.training, f"{where}, [training]")
    for task, options in grid.task_training.items():
        check_options(options, f"{where}, [training.{task}]")
    check_finite(grid.own, f"{where}, [{grid.kind}]")
    _check_tuning(grid, f"{where}, [tuning]")
    _check_question(grid, f"{where}, [question]")
    for arm in grid.arms:
        check_arm(arm, f"{where}, arm {arm.name!r}")
        _check_chooser(grid, arm, f"{where}, arm {arm.name!r}")
    for name in grid.paper.quoted:
        if name not in grid.paper.scores or name in [arm.name for arm in grid.arms]:
            wanted = "names of its tables that are no arms"
            raise ValueError(f"{where}, [paper]: quoted must be {wanted}, got {name!r}")
    KIND_CHECKS[grid.kind](grid, where)


def check_seeds(seeds: Sequence[int], where: str = "") -> None:
    """Refuse no seeds, and seeds that are there twice."""
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"{where}seeds must be one or more different numbers, got {list(seeds)}")


def _check_names(what: str, names: Sequence[str], where: str) -> None:
    """Refuse no names, and names that are there twice, or would share a folder."""
    if not names:
        raise ValueError(f"{where}: {what} must be one or more, got none")
    folders: dict[str, str] = {}
    for name in names:
        folder = folder_name(name)
        if not folder:
            raise ValueError(f"{where}: {what} must have a letter or digit each, got {name!r}")
        if folder in folders:
            other = folders[folder]
            raise ValueError(f"{where}: {what} must differ in letters, got {other!r} and {name!r}")
        folders[folder] = name


def _check_tuning(grid: Grid, where: str) -> None:
    """Refuse a way to choose ρ that is none."""
    if grid.tuning is None:
        return
    tried, held_out = grid.tuning.thresholds, grid.tuning.held_out
    if not tried or len(set(tried)) != len(tried) or min(tried) < 0:
        wanted = "one or more different numbers of at least 0"
        raise ValueError(f"{where}: thresholds must be {wanted}, got {list(tried)}")
    if not 0 < held_out < 1:
        raise ValueError(f"{where}: held_out must be between 0 and 1, got {held_out}")


def comparisons_of(grid: Grid, question: Question) -> int:
    """How many comparisons a question makes: of all arms but the base on all that it asks of."""
    return (len(grid.arms) - 1) * len(question.tasks or grid.tasks)


def _check_question(grid: Grid, where: str) -> None:
    """Refuse a question that cannot be answered."""
    if grid.question is None:
        return
    check_keys(dict.fromkeys(grid.question.tasks), grid.tasks, f"{where}, tasks")
    least, asked = grid.question.least, grid.question.tasks or grid.tasks
    if isinstance(least, Mapping) and set(least) != set(asked):
        wanted = f"a number for each of {', '.join(asked)}"
        raise ValueError(f"{where}: least must have {wanted}, got {', '.join(least) or 'none'}")
    for task in asked:
        check_inside(f"{where}: least", grid.question.least_of(task), 0.0, math.inf)
    if grid.question.family is not None:
        own = comparisons_of(grid, grid.question)
        check_integer(f"{where}: family", grid.question.family, least=max(1, own))


def _check_chooser(grid: Grid, arm: GridArm, where: str) -> None:
    """Refuse an arm whose ρ nothing chooses."""
    if arm.tune is not False and grid.tuning is None:
        raise ValueError(f"{where}: tune needs the grid's table [tuning]")
    choosers = [other.name for other in grid.arms if other.tune is True]
    if isinstance(arm.tune, str) and arm.tune not in choosers:
        wanted = "true, or name an arm with tune = true"
        raise ValueError(f"{where}: tune must be {wanted}, got {arm.tune!r}")


def check_tasks(grid: Grid, where: str) -> None:
    """Refuse unknown tasks; the paper's numbers may be of tasks that a grid leaves out."""
    quoted = [task for row in grid.paper.scores.values() for task in row]
    for name in (*grid.tasks, *quoted):
        try:
            known = get_task(name).name
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        if known != name:  # names are keys of other tables, too
            raise ValueError(f"{where}: task must be written {known!r}, got {name!r}")


def task_of(grid: Grid, name: str) -> Task:
    """What cells are trained on: the task of a name, or of a kind that has the name of one."""
    return get_task(grid.kind if plain_name(grid.kind) in TASK_NAMES else name)


def task_metrics(grid: Grid) -> Iterator[str]:
    """The metrics of a grid's tasks."""
    for task in map(get_task, grid.tasks):
        yield from (task.primary_metric, *task.other_metrics)


def check_columns(grid: Grid, known: Sequence[str], where: str) -> None:
    """Refuse columns that a table could not have."""
    names = tuple(dict.fromkeys(known))
    for name in grid.columns:
        if name not in names:
            wanted = f"{', '.join(names)}, which its tasks have"
            raise ValueError(f"{where}: columns must be among {wanted}, got {name!r}")


def folder_name(name: str) -> str:
    """The folder of an arm or a task."""
    plain = name.lower().replace("†", "-dagger").replace("³", "3").replace("²", "2")
    return re.sub(r"[^\w.+]+", "-", plain).strip("-.")


def read_grid(path: str | Path) -> Grid:
    """Read a grid's file."""
    return Grid.from_dict(read_toml(Path(path)), f"grid {path}")


def load_grid(name: str) -> Grid:
    """Return a grid by name, or from a file.

    Args:
        name: One of :func:`grid_names`, or a path that ends in ``.toml``.

    Returns:
        The grid.

    Raises:
        ValueError: If there is no such grid, or the file is not one.
        OSError: If the file cannot be read.
    """
    return read_grid(grid_path(name))
