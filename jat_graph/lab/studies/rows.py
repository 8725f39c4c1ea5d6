"""The lines of an experiment's table, and their mean over the tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np

from jat_graph.lab.statistics import Summary, paired_difference, summarize
from jat_graph.lab.studies.bootstrap import Interval, interval
from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.grid_parts import SECONDS, GridArm
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.sums import Floats

MEAN = "mean of tasks"

# Metrics that are shown as they are; all others are shares, shown in percent as papers do.
_NO_SHARES = (SECONDS, "perplexity", "bits_per_")


@dataclass(frozen=True)
class Change:
    """How much an arm differs from the arm that it is compared with.

    Args:
        by_seed: The difference on each seed that both have; of seconds the share of more time.
        interval: The 95 % interval of the mean; None if there is none.
        draws: Resampled differences; None where examples could not be resampled.
    """

    by_seed: Mapping[int, float]
    interval: Interval | None
    draws: Floats | None = None

    @property
    def mean(self) -> float:
        """The mean difference."""
        return fmean(self.by_seed.values())


@dataclass(frozen=True)
class Row:
    """One arm on one measure.

    Args:
        task: The task, or :data:`MEAN`.
        split: The dev set; empty if the task has one only.
        metric: What was measured.
        arm: The arm.
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
    change: Change | None = field(default=None, compare=False)
    paper: float | None = None
    paper_change: float | None = None
    threshold: float | None = None

    @property
    def summary(self) -> Summary | None:
        """Mean and spread over the seeds; None if a score is undefined."""
        known = [value for value in self.values.values() if value is not None]
        return summarize(known) if len(known) == len(self.values) else None


def is_share(metric: str) -> bool:
    """Tell whether a metric is shown in percent, as papers do."""
    return not metric.startswith(_NO_SHARES)


def over_seeds(by_seed: Mapping[int, float]) -> Change:
    """Return a change whose interval is Student's, over the seeds alone."""
    values = list(by_seed.values())
    found = paired_difference(values, [0.0] * len(values))
    if found.low is None or found.high is None:
        return Change(by_seed, None)
    return Change(by_seed, Interval(found.low, found.high))


def mean_rows(grid: Grid, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the mean over the tasks of each arm that has all of them, each of the same weight."""
    metrics = {row.metric for row in rows}
    alike = metrics == {SECONDS} or all(is_share(name) for name in metrics)
    primary = kind_of(grid.kind).primary_metric
    named = all(primary(task) is not None for task in grid.tasks)
    if not named or not alike or len(grid.tasks) < 2 or not _has_mean(grid, rows):
        return
    for arm in grid.arms:
        of_tasks = [[r for r in rows if (r.task, r.arm) == (task, arm)] for task in grid.tasks]
        if all(of_tasks):
            yield _mean_row([_mean_row(group) for group in of_tasks])


def _has_mean(grid: Grid, rows: Sequence[Row]) -> bool:
    """Tell whether a mean over the tasks is wanted: exact match and F1 together say little."""
    if grid.mean is not None:
        return grid.mean
    return len({(row.task, row.metric) for row in rows}) == len({row.task for row in rows})


def _mean_row(rows: Sequence[Row]) -> Row:
    """Return the mean of rows of one arm, on the seeds that all have."""
    metrics = {row.metric for row in rows}
    return Row(
        task=MEAN,
        split="",
        metric=SECONDS if metrics == {SECONDS} else "",
        arm=rows[0].arm,
        values=_mean_by_seed([row.values for row in rows]),
        change=_mean_change([row.change for row in rows]),
        paper=_mean([row.paper for row in rows]),
        paper_change=_mean([row.paper_change for row in rows]),
    )


def _mean_change(changes: Sequence[Change | None]) -> Change | None:
    known = [change for change in changes if change is not None]
    by_seed = _mean_by_seed([change.by_seed for change in known])
    values = {seed: value for seed, value in by_seed.items() if value is not None}
    if len(known) < len(changes) or not values:
        return None
    if any(change.by_seed.keys() != values.keys() for change in known):
        return Change(values, None)  # draws of other seeds than the mean's
    draws = [change.draws for change in known if change.draws is not None]
    if len(draws) < len(known):
        return over_seeds(values)
    mean = np.mean(draws, axis=0)  # tasks are resampled apart
    return Change(values, interval(mean), mean)


def _mean_by_seed(columns: Sequence[Mapping[int, float | None]]) -> dict[int, float | None]:
    shared = set.intersection(*map(set, columns)) if columns else set()
    return {seed: _mean([column[seed] for column in columns]) for seed in sorted(shared)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None
