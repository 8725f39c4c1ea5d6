"""A grid: which arms an experiment trains on which tasks, and how often; one TOML file."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jat_graph.lab.studies.grid_checks import check_grid
from jat_graph.lab.studies.grid_fields import check_keys, count, flag, table, text, texts
from jat_graph.lab.studies.grid_parts import (
    GridArm,
    Paper,
    Tuning,
    read_arms,
    read_paper,
    read_tuning,
)
from jat_graph.lab.studies.kinds import KINDS

FOLDER = Path(__file__).parent / "grids"

# What a grid is trained with where it says nothing: weights are not chosen on the dev set that is
# then reported.
DEFAULT_TRAINING: Mapping[str, Any] = {"select_best": False}

# ρ is chosen by runs of this seed; those that are reported have seeds below.
TUNING_SEED = 9999

_KEYS = (
    *("name", "title", "source", "kind", "tasks", "seeds", "budget", "columns", "mean", "x_label"),
    *("training", "tuning", "arms", "paper"),
)


@dataclass(frozen=True)
class Grid:
    """An experiment, as its TOML file describes it.

    Args:
        name: What the command calls it.
        title: What it asks, in a few words.
        kind: How a cell is run, see :data:`jat_graph.lab.studies.kinds.KINDS`.
        tasks: The tasks; for ``"stepping-stones"`` the settings.
        arms: The arms; the first is the base.
        seeds: Number of seeds: 0, 1, 2 … (default: 3)
        source: Where the paper has it. (default: "")
        budget: The time that the grid was made for, in a sentence. (default: "")
        columns: Metrics that a table shows. (default: none, which means the primary ones)
        mean: Whether there is a mean over the tasks. (default: None, where each has one metric)
        x_label: What the arms' ``x`` means. (default: "")
        training: Options of all runs. (default: nothing)
        task_training: Options of one task's runs, by task. (default: nothing)
        tuning: How ρ is chosen. (default: None, not at all)
        paper: The paper's numbers. (default: none)
        own: The table that is named after the kind, which alone reads it. (default: nothing)
        content: The whole file.
    """

    name: str
    title: str
    kind: str
    tasks: tuple[str, ...]
    arms: tuple[GridArm, ...]
    seeds: int = 3
    source: str = ""
    budget: str = ""
    columns: tuple[str, ...] = ()
    mean: bool | None = None
    x_label: str = ""
    training: Mapping[str, Any] = field(default_factory=dict)
    task_training: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tuning: Tuning | None = None
    paper: Paper = field(default_factory=Paper)
    own: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> GridArm:
        """The arm that the others are compared with."""
        return self.arms[0]

    def arm(self, name: str) -> GridArm:
        """Return an arm.

        Args:
            name: Its name.

        Returns:
            The arm.

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
            task: The task.
            arm: The arm.

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
        kind = text(content, "kind", where, default="train")
        if kind not in KINDS:
            raise ValueError(f"{where}: kind must be one of {', '.join(KINDS)}, got {kind!r}")
        check_keys(content, (*_KEYS, *((kind,) if kind != "train" else ())), where)
        name, title = text(content, "name", where), text(content, "title", where)
        training = table(content, "training", where)
        grid = cls(
            name=name,
            title=title,
            kind=kind,
            tasks=texts(content, "tasks", where),
            arms=read_arms(content, where),
            seeds=count(content, "seeds", where, default=3, below=TUNING_SEED),
            source=text(content, "source", where, default=""),
            budget=text(content, "budget", where, default=""),
            columns=texts(content, "columns", where, default=()),
            mean=flag(content, "mean", where),
            x_label=text(content, "x_label", where, default=""),
            training={k: v for k, v in training.items() if not isinstance(v, Mapping)},
            task_training={k: v for k, v in training.items() if isinstance(v, Mapping)},
            tuning=read_tuning(content, where),
            paper=read_paper(content, where),
            own=table(content, kind, where),
            content=deepcopy(dict(content)),
        )
        check_grid(grid, where)
        return grid


def read_grid(path: str | Path) -> Grid:
    """Read a grid's file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    where = f"grid {path}"
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # TOML's own, or not UTF-8
        raise ValueError(f"{where} must be TOML: {str(error).splitlines()[0]}") from None
    return Grid.from_dict(content, where)


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


def grid_path(name: str) -> Path:
    """Return where a grid's file is."""
    if name.endswith(".toml"):
        return Path(name)
    if name not in grid_names():
        known = ", ".join(grid_names())
        raise ValueError(f"experiment must be one of {known} or a file FILE.toml, got {name!r}")
    return FOLDER / f"{name}.toml"


def grid_names() -> tuple[str, ...]:
    """Return the names of the grids that come with the library."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
