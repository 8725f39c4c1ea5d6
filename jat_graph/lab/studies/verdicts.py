"""What an experiment says of the question that its grid asks: yes, no, or unknown.

A question is written down before it is run: by how much an arm has to be better than the base, and
how many comparisons are asked together, for whose number the p-values are corrected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jat_graph.lab.statistics import Difference, Interval
from jat_graph.lab.studies.grid import Grid, Question, comparisons_of, task_of
from jat_graph.lab.studies.kinds import kind_of
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import Row
from jat_graph.lab.tables import NOTHING, is_share, show_change

if TYPE_CHECKING:
    from pandas import DataFrame

YES, NO, UNKNOWN = "yes", "no", "unknown"
LEVEL = 0.05  # of corrected p-values

_FEW = 2  # seeds, of which one alone has no p-value


class Gain(NamedTuple):
    """How much better an arm is than the base, where 1 is what the question asks for."""

    mean: float
    interval: Interval | None  # of 95 %; None where that is unknown


@dataclass(frozen=True)
class Verdict:
    """What is said of an arm at a place.

    Args:
        row: The arm's scores, and how far they are from the base's.
        p: Of the paired t test over the seeds; None where that is undefined.
        corrected: The same by Holm's method; None where there is no p.
        said: ``"yes"``, ``"no"`` or ``"unknown"``.
        gain: What that goes by.
    """

    row: Row
    p: float | None
    corrected: float | None
    said: str
    gain: Gain


def verdicts(results: Results, rows: Sequence[Row]) -> list[Verdict]:
    """Answer the grid's question for each arm and task that has been compared over the seeds."""
    question = results.grid.question
    if question is None:
        return []
    asked = [row for row in _asked(results, rows) if row.change is not None]
    found = [_paired_p(row.change) for row in asked if row.change is not None]
    known = [p for p in found if p is not None]
    corrected = iter(holm(known, _family(results.grid, question)))
    said = []
    for row, p in zip(asked, found, strict=True):
        adjusted = None if p is None else next(corrected)
        gain = _gain(results, row)
        said.append(Verdict(row, p, adjusted, _say(row, gain, adjusted), gain))
    return said


def holm(values: Sequence[float], family: int) -> list[float]:
    """Correct p-values for the number of comparisons, some of which may be made elsewhere.

    Those elsewhere count as if they were the largest, which no choice of theirs exceeds.

    Reference:
        Holm, *A simple sequentially rejective multiple test procedure*, 1979.
    """
    order = np.argsort(values, kind="stable")
    factors = family - np.arange(len(values))
    steps = np.minimum(1.0, np.maximum.accumulate(np.asarray(values)[order] * factors))
    corrected = np.empty(len(values))
    corrected[order] = steps
    return [float(value) for value in corrected]


def verdict_frame(found: Sequence[Verdict]) -> DataFrame:
    """The verdicts as texts."""
    from pandas import DataFrame

    return DataFrame([_texts(one) for one in found])


def question_line(results: Results, found: Sequence[Verdict]) -> str:
    """Say what the verdicts of a table go by."""
    question = results.grid.question
    assert question is not None
    sizes = [_size(question.least_of(one.row.task), one.row.metric) for one in found]
    least = " or ".join(dict.fromkeys(sizes))
    family = _family(results.grid, question)
    counted = "one comparison" if family == 1 else f"{family} comparisons"
    return (
        f"The verdict is yes where an arm is better than {results.grid.base.name!r} by {least} or "
        f"more and p is below {LEVEL}, after Holm's correction for {counted} (paired t "
        "test over the seeds); no where the interval lies below that size; else unknown."
    )


def _family(grid: Grid, question: Question) -> int:
    """How many comparisons are corrected together, those that are not run yet too."""
    return question.family or comparisons_of(grid, question)


def _asked(results: Results, rows: Sequence[Row]) -> Iterator[Row]:
    """The rows that the question is about, one for each task and arm."""
    question, kind = results.grid.question, kind_of(results.grid)
    assert question is not None
    for task in question.tasks or results.grid.tasks:
        metric = kind.asked(results.grid, task)
        own = [row for row in rows if row.task == task and row.metric == metric]
        yield from (row for row in own if row.split == own[-1].split)  # a test set comes last


def _paired_p(change: Difference) -> float | None:
    if len(change.by_seed) < _FEW:
        return None
    if change.is_zero:
        return 1.0
    if change.is_constant:
        return None
    from scipy.stats import ttest_1samp

    return float(ttest_1samp(change.values, 0.0).pvalue)


def _gain(results: Results, row: Row) -> Gain:
    question, change = results.grid.question, row.change
    assert question is not None and change is not None
    unit = question.least_of(row.task) / (100 if is_share(row.metric) else 1)
    if not task_of(results.grid, row.task).greater_is_better:
        unit = -unit
    if change.interval is None:
        return Gain(change.mean / unit, None)
    low, high = sorted([change.interval.low / unit, change.interval.high / unit])
    return Gain(change.mean / unit, Interval(low, high))


def _say(row: Row, gain: Gain, p: float | None) -> str:
    assert row.change is not None
    if p is not None and p < LEVEL and gain.mean >= 1:
        return YES
    if gain.interval is None or len(row.change.by_seed) < _FEW:
        return UNKNOWN
    return NO if gain.interval.high < 1 else UNKNOWN


def _size(least: float, metric: str) -> str:
    if is_share(metric):
        return f"{least:g} point{'' if least == 1 else 's'}"
    return f"{least:g} {metric.replace('_per_', ' a ')}"


def _texts(one: Verdict) -> dict[str, str]:
    change = one.row.change
    assert change is not None
    low, high = (
        NOTHING if end is None else show_change(end, one.row.metric)
        for end in (change.low, change.high)
    )
    return {
        "measure": one.row.place,
        "arm": one.row.arm.name,
        "change": show_change(change.mean, one.row.metric),
        "95 % interval": f"{low} to {high}" if NOTHING not in (low, high) else NOTHING,
        "p": _number(one.p),
        "corrected": _number(one.corrected),
        "verdict": one.said,
    }


def _number(p: float | None) -> str:
    return NOTHING if p is None else f"{p:.4f}" if p >= 0.0001 else "< 0.0001"
