"""Results of an experiment: JSON lines, a header and then a line for each finished cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from jat_graph.lab.parsing import STRICT, parse
from jat_graph.lab.store import pop_version, read_lines, write_lines
from jat_graph.lab.studies.cells import Cell
from jat_graph.lab.studies.grid import Grid
from jat_graph.training.storage import check_answers

RESULTS_VERSION = 1
RESULTS_FILE = "results.jsonl"

# Answers are compared with each other, not calculated with.
_DIGITS = 5


@dataclass(frozen=True)
class Record:
    """What a finished cell says about itself.

    Args:
        task: Name of the task, as in :class:`jat_graph.experiments.Cell`.
        arm: Name of the arm.
        seed: Of new weights, the data order and dropout.
        scores: ``scores[split][metric]``; None where undefined.
        answers: ``answers[split]["said"]`` and ``["right"]``, one entry an example, which the
            task's ``measure`` reads. (default: nothing)
        seconds: Wall-clock time of training. (default: 0.0)
        steps: Optimizer steps. (default: 0)
        device: Where it ran. (default: "cpu")
        mixed_precision: ``"bf16"``, ``"fp16"`` or ``"no"``; None where it was not written down.
            (default: None)
        heads: Settings of the heads; None for a model without. (default: None)
        examples: Number of examples used of each split, of ``"train"`` too. (default: nothing)
        threshold: ρ that tuning chose. (default: None)
        tuning: Score of each ρ that was tried, by its text. (default: None)
        all_examples: Number of examples that each split has, of which these were drawn.
            (default: nothing)
        machine: What it ran on, with which versions, and a digest of the package's ``source``.
            (default: nothing)
        strengths: What jump heads learned of how strongly to jump, by the names of their modules:
            lists ``[queries, keys, values][hop][head]``. (default: nothing)
    """

    __pydantic_config__ = STRICT

    task: str
    arm: str
    seed: int
    scores: Mapping[str, Mapping[str, float | None]]
    answers: Mapping[str, Mapping[str, list[Any]]] = field(default_factory=dict)
    seconds: float = 0.0
    steps: int = 0
    device: str = "cpu"
    mixed_precision: str | None = None
    heads: Mapping[str, Any] | None = None
    examples: Mapping[str, int] = field(default_factory=dict)
    threshold: float | None = None
    tuning: Mapping[str, float | None] | None = None
    all_examples: Mapping[str, int] = field(default_factory=dict)
    machine: Mapping[str, str | int] = field(default_factory=dict)
    strengths: Mapping[str, list[list[list[float]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_answers(self.answers)

    @property
    def cell(self) -> Cell:
        """The cell."""
        return Cell(self.task, self.arm, self.seed)

    def score(self, split: str, metric: str) -> float | None:
        """Return a score.

        Args:
            split: Name of the split.
            metric: Name of the metric.

        Returns:
            The score; None if there is none.
        """
        return self.scores.get(split, {}).get(metric)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON types; numbers among the answers are shortened."""
        return asdict(self) | {"answers": _shortened(self.answers)}

    @classmethod
    def from_dict(cls, content: Any) -> Record:
        """Return the record that :meth:`to_dict` described.

        Args:
            content: Fields by name.

        Returns:
            The record.

        Raises:
            ValueError: If the fields are not a record's.
        """
        return parse(cls, content, "a finished cell")


@dataclass(frozen=True)
class Results:
    """All finished cells of an experiment.

    Args:
        grid: What was asked for, with all arms and tasks.
        fingerprint: What results share that may stand in one table.
        model: The model, without the way to it.
        data: The folder of the data, without the way to it; None without one.
        versions: Versions of the packages that matter.
        machine: What wrote the file first; each cell says what it ran on.
        records: The finished cells, in the grid's order.
    """

    grid: Grid
    fingerprint: str
    model: str
    data: str | None
    versions: Mapping[str, str]
    machine: Mapping[str, str | int]
    records: tuple[Record, ...] = ()

    def of(self, task: str, arm: str) -> tuple[Record, ...]:
        """Return the finished cells of an arm on a task.

        Args:
            task: Name of a task of the grid.
            arm: Name of an arm.

        Returns:
            The records, by seed.
        """
        return tuple(record for record in self.records if (record.task, record.arm) == (task, arm))

    def header(self) -> dict[str, Any]:
        """Return the first line of the file."""
        described = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        del described["records"]
        return {"version": RESULTS_VERSION} | described | {"grid": self.grid.to_dict()}


def sort_records(grid: Grid, records: Iterable[Record]) -> tuple[Record, ...]:
    """Bring records into the grid's order: by task, arm and seed."""
    tasks, arms = list(grid.tasks), [arm.name for arm in grid.arms]
    order = {(t, a): (i, j) for i, t in enumerate(tasks) for j, a in enumerate(arms)}
    return tuple(sorted(records, key=lambda r: (*order[r.task, r.arm], r.seed)))


def write_results(path: str | Path, results: Results) -> None:
    """Write results; the file appears whole or not at all.

    Args:
        path: The file.
        results: What the file is to hold.

    Raises:
        OSError: If it cannot be written.
        ValueError: If a number is not finite.
    """
    write_lines(path, [results.header(), *(record.to_dict() for record in results.records)])


def read_results(path: str | Path) -> Results:
    """Read what ``jat-graph experiment`` wrote.

    Args:
        path: The file.

    Returns:
        The results.

    Raises:
        ValueError: If the file does not hold results of this version; the line is named.
        OSError: If it cannot be read.
    """
    where = f"results {path}"
    lines = read_lines(path, where)
    place, header = next(lines)
    pop_version(header, RESULTS_VERSION, where, "experiment")
    found = parse(_Header, header, place)
    grid = Grid.from_dict(found.grid, f"{where}, grid")
    records = [parse(Record, content, place) for place, content in lines]
    _check_records(grid, records, where)
    return Results(**(vars(found) | {"grid": grid}), records=sort_records(grid, records))


@dataclass(frozen=True)
class _Header:
    """The first line of a file of results."""

    __pydantic_config__ = STRICT

    grid: Mapping[str, Any]
    fingerprint: str
    model: str
    data: str | None
    versions: Mapping[str, str]
    machine: Mapping[str, str | int]


def _check_records(grid: Grid, records: list[Record], where: str) -> None:
    """Refuse cells that the grid lacks, or that are there twice."""
    arms, seen = {arm.name for arm in grid.arms}, set()
    for record in records:
        cell = record.cell
        if cell.task not in grid.tasks or cell.arm not in arms or cell.seed not in grid.all_seeds:
            raise ValueError(f"{where}: {cell} is no cell of its grid")
        if cell in seen:
            raise ValueError(f"{where}: {cell} is there twice")
        seen.add(cell)


def _shortened(value: Any) -> Any:
    """Round all floats to a few significant digits."""
    if isinstance(value, Mapping):
        return {key: _shortened(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(entry) for entry in value]
    if isinstance(value, float):
        short = float(f"{value:.{_DIGITS}g}")
        return short if math.isfinite(short) else value
    return value
