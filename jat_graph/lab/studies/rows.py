"""The lines of an experiment's table: every arm against its base, and means over the tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from jat_graph.lab.measures import Measure, Scorer, scorer
from jat_graph.lab.statistics import (
    Difference,
    Summary,
    interval,
    over_seeds,
    over_seeds_and_examples,
    summarize,
)
from jat_graph.lab.studies.arms import GridArm
from jat_graph.lab.studies.curriculum import has_passed
from jat_graph.lab.studies.grid import Grid, task_of
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.tables import SECONDS, is_share

MEAN = "mean of tasks"

_SPLIT = re.compile(r"(\D+) (\d+)")  # of a dev set that is one of many, as "layer 3"


@dataclass(frozen=True)
class Row:
    """One arm on one measure.

    Args:
        task: The task, or :data:`MEAN`.
        split: The dev set; empty if the task has one only.
        metric: What was measured.
        arm: Name of the arm.
        values: The score of each finished seed; None where undefined.
        change: Against the arm that this one is compared with; None if there is nothing to compare.
        paper: The paper's number, in its units; None if it has none.
        paper_change: The paper's number less that of its base; of seconds the paper's number of
            percent of more time.
        threshold: The ρ that was chosen; None if none was.
    """

    task: str
    split: str
    metric: str
    arm: GridArm
    values: Mapping[int, float | None]
    change: Difference | None = field(default=None, compare=False)
    paper: float | None = None
    paper_change: float | None = None
    threshold: float | None = None

    @property
    def summary(self) -> Summary | None:
        """Mean and spread over the seeds; None if a score is undefined."""
        known = [value for value in self.values.values() if value is not None]
        return summarize(known) if len(known) == len(self.values) else None

    @property
    def place(self) -> str:
        """What is measured."""
        return ", ".join(part for part in (self.task, self.split, self.metric) if part)

    @property
    def number(self) -> int | None:
        """The number that the metric ends with, or the dev set."""
        split, metric = _SPLIT.fullmatch(self.split), re.fullmatch(r".*_(\d+)", self.metric)
        return int(split[2]) if split else int(metric[1]) if metric else None

    @property
    def stem(self) -> str:
        """What is measured, without what is numbered."""
        split = "" if _SPLIT.fullmatch(self.split) else self.split
        metric = re.sub(r"_\d+$", "", self.metric)
        return ", ".join(part for part in (self.task, split, metric) if part)


@dataclass(frozen=True)
class Place:
    """Where scores are looked up."""

    task: str
    split: str
    metric: str

    def value(self, record: Record) -> float | None:
        """Return a record's score; None if it has none."""
        return record.seconds if self.metric == SECONDS else record.score(self.split, self.metric)


def experiment_rows(results: Results) -> tuple[Row, ...]:
    """The lines of an experiment's table: each arm on each measure, against its base."""
    return Scores(results).rows()


def reference_arm(grid: Grid, arm: GridArm) -> GridArm:
    """Return what an arm is compared with."""
    line = grid.base.line
    return next((a for a in grid.arms if line and a.line == line and a.x == arm.x), grid.base)


class Scores:
    """Finished cells by task, arm and seed."""

    def __init__(self, results: Results) -> None:
        self.grid, self.kind = results.grid, kind_of(results.grid)
        self.cells: dict[tuple[str, str], dict[int, Record]] = {}
        for record in results.records:
            self.cells.setdefault((record.task, record.arm), {})[record.seed] = record
        self._scorers: dict[tuple[Place, str, int], Scorer] = {}
        self._differences: dict[tuple[Place, str, str], Difference | None] = {}

    def rows(self) -> tuple[Row, ...]:
        """All lines of a table, those of the mean over the tasks last."""
        rows = [self.row(place, arm) for place in self.places() for arm in self.arms(place.task)]
        return (*rows, *mean_rows(self.grid, rows))

    def arms(self, task: str) -> list[GridArm]:
        """Return the arms with a finished cell."""
        return [arm for arm in self.grid.arms if (task, arm.name) in self.cells]

    def places(self) -> Iterator[Place]:
        """Yield what is tabulated, task by task."""
        for task in self.grid.tasks:
            for arm in self.arms(task)[:1]:
                record = next(iter(self.cells[task, arm.name].values()))
                if SECONDS in self.grid.columns:
                    yield Place(task, "", SECONDS)
                for split, names in self.kind.shown(record).items():
                    for name in self.grid.columns or names:
                        if name in record.scores[split]:
                            yield Place(task, split, name)

    def row(self, place: Place, arm: GridArm) -> Row:
        """Return the row of an arm."""
        records = self.cells[place.task, arm.name]
        first = next(iter(records.values()))
        paper, paper_change = self._paper(place, arm)
        return Row(
            task=place.task,
            split=place.split if len(first.scores) > 1 else "",
            metric=place.metric,
            arm=arm,
            values={seed: place.value(record) for seed, record in records.items()},
            change=self.difference(place, arm, reference_arm(self.grid, arm)),
            paper=paper,
            paper_change=paper_change,
            threshold=first.threshold,
        )

    def _paper(self, place: Place, arm: GridArm) -> tuple[float | None, float | None]:
        """Return the paper's number, and its change against the paper's base."""
        base = reference_arm(self.grid, arm)
        own, other = (_printed(self.grid, place, a) for a in (arm, base))
        if place.metric == SECONDS:
            return None, own
        return own, None if arm is base or own is None or other is None else own - other

    def difference(self, place: Place, arm: GridArm, base: GridArm) -> Difference | None:
        """How an arm differs from another one, on the seeds that both have finished."""
        key = place, arm.name, base.name
        if key not in self._differences:
            self._differences[key] = self._compare(place, arm, base)
        return self._differences[key]

    def _compare(self, place: Place, arm: GridArm, base: GridArm) -> Difference | None:
        cells, others = (self.cells.get((place.task, a.name), {}) for a in (arm, base))
        fit = [s for s in cells if s in others and has_passed(self.grid, others[s])]
        pairs = {s: (place.value(cells[s]), place.value(others[s])) for s in fit}
        known = {s: (a, b) for s, (a, b) in pairs.items() if a is not None and b is not None}
        if arm is base or not pairs or len(known) < len(pairs):
            return None
        if place.metric == SECONDS:
            return over_seeds({s: a / b - 1 for s, (a, b) in known.items()})
        by_seed = {s: a - b for s, (a, b) in known.items()}
        measure = getattr(task_of(self.grid, place.task), "measure", None)
        if measure is None or not self._same_examples(place, arm, base, by_seed):
            return over_seeds(by_seed)
        ours, theirs = (
            [self._scorer(measure, place, a.name, seed) for seed in by_seed] for a in (arm, base)
        )
        name = f"{place.task} {place.split}"
        return over_seeds_and_examples(by_seed, ours, theirs, name, place.task)

    def _same_examples(
        self, place: Place, arm: GridArm, base: GridArm, seeds: Mapping[int, float]
    ) -> bool:
        """Tell whether there are examples to resample; refuse arms that were given others."""
        cells = [self.cells[place.task, a.name][seed] for a in (arm, base) for seed in seeds]
        right = [
            cell.answers[place.split]["right"] for cell in cells if place.split in cell.answers
        ]
        if len(right) < len(cells):
            return False
        if any(one != right[0] for one in right):
            raise ValueError(
                f"arms {arm.name!r} and {base.name!r} of {place.task} must be scored on the same "
                f"examples of {place.split}, got others"
            )
        return True

    def _scorer(self, measure: Measure, place: Place, arm: str, seed: int) -> Scorer:
        key = place, arm, seed
        if key not in self._scorers:  # the base is needed by every other arm
            answers = self.cells[place.task, arm][seed].answers[place.split]
            self._scorers[key] = scorer(measure, place.metric, answers["said"], answers["right"])
        return self._scorers[key]


def _printed(grid: Grid, place: Place, arm: GridArm) -> float | None:
    """Return the number that the paper prints; one without a metric is of the primary one.

    It is of a dev set as a whole, and so none of one of its layers.
    """
    if _SPLIT.fullmatch(place.split):
        return None
    found = grid.paper.scores.get(arm.name, {}).get(place.task)
    if isinstance(found, Mapping):
        return found.get(place.metric)
    return found if place.metric == task_of(grid, place.task).primary_metric else None


def quoted_rows(grid: Grid, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows, and after those of each measure what the paper prints of models not run."""
    for group in group_rows(rows, lambda row: row.place):
        yield from group
        row, is_mean = group[0], group[0].task == MEAN  # which the paper takes over other tasks
        for arm in [] if is_mean else map(GridArm, grid.paper.quoted):
            number = _printed(grid, Place(row.task, row.split, row.metric), arm)
            if number is not None:
                yield Row(row.task, row.split, row.metric, arm, {}, paper=number)


def group_rows(rows: Sequence[Row], key: Callable[[Row], str]) -> list[list[Row]]:
    """The rows that share a name, together."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def number_label(grid: Grid, row: Row) -> str:
    """What the number of a row counts."""
    split = _SPLIT.fullmatch(row.split)
    return grid.x_label or (split[1] if split else re.sub(r"_\d+$", "", row.metric))


def mean_rows(grid: Grid, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the mean over the tasks of each arm that has all of them, each of the same weight."""
    metrics = {row.metric for row in rows}
    alike = metrics == {SECONDS} or all(is_share(name) for name in metrics)
    if len({task_of(grid, name).name for name in grid.tasks}) < 2:  # settings are of one
        return
    if not alike or not _has_mean(grid, rows):
        return
    for arm in grid.arms:
        of_tasks = [[r for r in rows if (r.task, r.arm) == (task, arm)] for task in grid.tasks]
        if all(of_tasks):
            yield _mean_row([_mean_row(group) for group in of_tasks])


def _has_mean(grid: Grid, rows: Sequence[Row]) -> bool:
    """Tell whether a mean over the tasks is wanted: exact match and F1 together say little."""
    if grid.mean is not None:
        return grid.mean
    found = {(row.task, row.metric, row.number) for row in rows}  # each layer is another measure
    return len(found) == len({row.task for row in rows})


def _mean_row(rows: Sequence[Row]) -> Row:
    """Return the mean of rows of one arm, on the seeds that all have."""
    metrics = {row.metric for row in rows}
    return Row(
        task=MEAN,
        split="",
        metric=SECONDS if metrics == {SECONDS} else "",
        arm=rows[0].arm,
        values=_mean_by_seed([row.values for row in rows]),
        change=_mean_difference([row.change for row in rows]),
        paper=_mean([row.paper for row in rows]),
        paper_change=_mean([row.paper_change for row in rows]),
    )


def _mean_difference(changes: Sequence[Difference | None]) -> Difference | None:
    known = [change for change in changes if change is not None]
    by_seed = _mean_by_seed([change.by_seed for change in known])
    values = {seed: value for seed, value in by_seed.items() if value is not None}
    if len(known) < len(changes) or not values:
        return None
    if any(change.by_seed.keys() != values.keys() for change in known):
        return Difference(values, None)  # draws of other seeds than the mean's
    draws = [change.draws for change in known if change.draws is not None]
    if len(draws) < len(known):
        return over_seeds(values)
    mean = np.mean(draws, axis=0)  # tasks are resampled apart
    return Difference(values, interval(mean), mean)


def _mean_by_seed(columns: Sequence[Mapping[int, float | None]]) -> dict[int, float | None]:
    shared = set.intersection(*map(set, columns)) if columns else set()
    return {seed: _mean([column[seed] for column in columns]) for seed in sorted(shared)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None
