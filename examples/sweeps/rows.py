"""The lines of a sweep's table: every variant against its base, means over tasks, verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple, TypeAlias

from examples.sweeps import statistics
from examples.sweeps.definition import Sweep, Variant
from examples.sweeps.store import Record, Results
from examples.tasks import RecallTask, Task, get_task

Place: TypeAlias = tuple[str, str, str]  # a task, a split and a metric

MEAN = "mean of tasks"
SECONDS = "seconds"
LEVEL = 0.05  # of corrected p-values
_NO_SHARES = (SECONDS, "perplexity", "bits_per_", "mse", "reach")  # all other metrics are shares
_SPLIT = re.compile(r"(\D+) (\d+)")  # of a split that is one of many, as "layer 3"
_OF_IDS = ("partners", "far-recall")  # kinds whose tasks are sizes and models
_READ = ("programs", "tables", "graphs")  # kinds of finished sweeps, of tasks of their own


@dataclass(frozen=True)
class Row:
    """One variant on one measure: the score of each finished seed, None where undefined."""

    task: str
    split: str
    metric: str
    variant: Variant
    values: Mapping[int, float | None]
    change: statistics.Difference | None = field(default=None, compare=False)
    paper: float | None = None  # in the paper's units
    paper_change: float | None = None  # of seconds its percent of more time
    threshold: float | None = None

    @property
    def mean(self) -> float | None:
        """The mean over the seeds; None if a score is undefined, or there is none."""
        return _mean(self.values.values())

    @property
    def std(self) -> float | None:
        """The standard deviation over the seeds (ddof=1); None for one."""
        known = [value for value in self.values.values() if value is not None]
        return stdev(known) if 1 < len(known) == len(self.values) else None

    @property
    def place(self) -> str:
        """What is measured."""
        return ", ".join(part for part in (self.task, self.split, self.metric) if part)

    @property
    def number(self) -> int | None:
        """The number that the metric ends with, or the split."""
        split, metric = _SPLIT.fullmatch(self.split), re.fullmatch(r".*_(\d+)", self.metric)
        return int(split[2]) if split else int(metric[1]) if metric else None

    @property
    def stem(self) -> str:
        """What is measured, without what is numbered."""
        split = "" if _SPLIT.fullmatch(self.split) else self.split
        parts = (self.task, split, re.sub(r"_\d+$", "", self.metric))
        return ", ".join(part for part in parts if part)


class Verdict(NamedTuple):
    """What is said of a variant at a place."""

    row: Row
    p: float | None
    corrected: float | None
    said: Literal["yes", "no", "unknown"]
    gain: float  # 1 where it is as large as the question asks for
    interval: tuple[float, float] | None  # of the gain


def is_share(metric: str) -> bool:
    """Tell whether a metric is shown in percent, as papers do."""
    return not metric.startswith(_NO_SHARES)


def task_of(sweep: Sweep, name: str) -> Task | RecallTask:
    """Return the task of a name, or of a kind of sweep that has the name of one."""
    if sweep.kind in _READ:
        return Task(name, sweep.kind, lambda *_: {}, None, sweep.columns)
    return get_task(sweep.kind if sweep.kind in _OF_IDS else name)


def make_rows(results: Results) -> list[Row]:
    """Return all lines of a table, those of the mean over the tasks last."""
    sweep, scorers, rows = results.sweep, dict[Any, statistics.Scorer | None](), list[Row]()
    for task in sweep.tasks:
        found = {v.name: of for v in sweep.variants if (of := results.of(task, v.name))}
        compared = [(v, v.name, sweep.base_of(v).name) for v in sweep.variants if v.name in found]
        for name, other in sweep.pairs:
            if name in found and other in found:
                compared.append((Variant(name=f"{name} against {other}"), name, other))
        for place in _places(sweep, task, next(iter(found.values()), {})):
            for variant, name, other in compared:
                own, base = found[name], found.get(other, {})
                change = _change(sweep, place, own, base, scorers)
                rows.append(_row(sweep, place, variant, own, change))
    return [*rows, *_mean_rows(sweep, rows)]


def _places(sweep: Sweep, task: str, records: Mapping[int, Record]) -> Iterator[Place]:
    """The splits and metrics that a task's table shows."""
    if not records:
        return
    scores = next(iter(records.values())).scores
    if SECONDS in sweep.columns:
        yield task, "", SECONDS
    splits = list(scores)
    if sweep.kind in (*_OF_IDS, "scratch"):
        splits = ["test" if "test" in scores else splits[0]]
    for split in splits:
        names: Sequence[str] = list(scores[split])
        if sweep.kind in _OF_IDS and len(names) == 2 and "accuracy" in names:
            names = ["accuracy"]  # where all sequences are of one size, that is said once
        elif sweep.kind in ("train", "reading", "scratch", "trees"):
            names = [task_of(sweep, task).primary_metric]
        for name in sweep.columns or names:
            if name in scores[split]:
                yield task, split, name


def _row(
    sweep: Sweep,
    place: Place,
    variant: Variant,
    records: Mapping[int, Record],
    change: statistics.Difference | None,
) -> Row:
    task, split, metric = place
    first = next(iter(records.values()))
    base = sweep.base_of(variant)
    own, other = (_printed(sweep, place, v) for v in (variant, base))
    printed = None
    if metric == SECONDS:
        own, printed = None, own
    elif variant.name != base.name and own is not None and other is not None:
        printed = own - other
    return Row(
        task=task,
        split=split if len(first.scores) > 1 else "",
        metric=metric,
        variant=variant,
        values={seed: record.value(split, metric) for seed, record in records.items()},
        change=change,
        paper=own,
        paper_change=printed,
        threshold=first.content.get("threshold"),
    )


def _printed(sweep: Sweep, place: Place, variant: Variant) -> float | None:
    """The number that the paper prints, of a split as a whole, a mean if of the same tasks."""
    task, split, metric = place
    scores = sweep.paper.scores.get(variant.name, {})
    found = scores.get(task)
    if _SPLIT.fullmatch(split) or (task == MEAN and scores.keys() - {MEAN} != set(sweep.tasks)):
        return None
    if isinstance(found, Mapping):
        return found.get(metric)
    if found is None or task == MEAN:
        return found
    return found if metric == task_of(sweep, task).primary_metric else None


def _change(
    sweep: Sweep,
    place: Place,
    ours: Mapping[int, Record],
    theirs: Mapping[int, Record],
    scorers: dict[Any, statistics.Scorer | None],
) -> statistics.Difference | None:
    """How a variant differs from its base, on the seeds that both have finished."""
    task, split, metric = place
    seeds = [s for s in ours if s in theirs]
    pairs = {s: (ours[s].value(split, metric), theirs[s].value(split, metric)) for s in seeds}
    known = {s: (a, b) for s, (a, b) in pairs.items() if a is not None and b is not None}
    if (ours.keys() and ours == theirs) or not pairs or len(known) < len(pairs):
        return None
    if metric == SECONDS:
        return statistics.over_seeds({s: a / b - 1 for s, (a, b) in known.items()})
    by_seed = {s: a - b for s, (a, b) in known.items()}
    records = [of[seed] for of in (ours, theirs) for seed in by_seed]
    answers = [record.content["answers"].get(split) for record in records]
    if None in answers:
        return statistics.over_seeds(by_seed)
    if any(one["right"] != answers[0]["right"] for one in answers):
        names = " and ".join(dict.fromkeys(record.variant for record in records))
        raise ValueError(f"{names} of {task} must be scored on the same examples of {split}")
    measure, sides = task_of(sweep, task).measure, []
    for record, own in zip(records, answers, strict=True):
        key = place, record.variant, record.seed
        if key not in scorers:  # the base is needed by every other variant
            scorers[key] = statistics.make_scorer(measure, metric, own["said"], own["right"])
        sides.append(scorers[key])
    halves = sides[: len(by_seed)], sides[len(by_seed) :]
    return statistics.over_seeds_and_examples(by_seed, *halves, f"{task} {split}", task)


def _mean_rows(sweep: Sweep, rows: Sequence[Row]) -> Iterator[Row]:
    """The mean over the tasks of each variant that has all, each task of the same weight."""
    metrics = {row.metric for row in rows}
    alike = metrics == {SECONDS} or all(map(is_share, metrics))
    wanted = sweep.mean
    if wanted is None:  # where each task has one measure
        different = {(row.task, row.metric, row.number) for row in rows}
        wanted = len(different) == len({row.task for row in rows})
    if len({task_of(sweep, name).name for name in sweep.tasks}) < 2 or not (alike and wanted):
        return
    for variant in sweep.variants:
        own = [row for row in rows if row.variant == variant]
        of_tasks = [[row for row in own if row.task == task] for task in sweep.tasks]
        if all(of_tasks):
            mean = _mean_row([_mean_row(group) for group in of_tasks])
            printed = _printed(sweep, (MEAN, "", ""), variant)
            yield mean if printed is None else replace(mean, paper=printed)


def _mean_row(rows: Sequence[Row]) -> Row:
    """The mean of rows of one variant, on the seeds that all have."""
    seeds = sorted(set.intersection(*(set(row.values) for row in rows)))
    return Row(
        task=MEAN,
        split="",
        metric=SECONDS if {row.metric for row in rows} == {SECONDS} else "",
        variant=rows[0].variant,
        values={seed: _mean([row.values[seed] for row in rows]) for seed in seeds},
        change=statistics.mean_difference([row.change for row in rows]),
        paper=_mean([row.paper for row in rows]),
        paper_change=_mean([row.paper_change for row in rows]),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    every = list(values)
    return fmean(every) if every and None not in every else None


def quoted_rows(sweep: Sweep, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the rows, and after those of each measure what the paper prints of models not run."""
    for _, group in groupby(rows, lambda row: row.place):
        own = list(group)
        yield from own
        index = own[0].task, own[0].split, own[0].metric
        for quoted in (Variant(name=name) for name in sweep.paper.quoted):
            if (number := _printed(sweep, index, quoted)) is not None:
                yield Row(*index, quoted, {}, paper=number)


def asked_metric(sweep: Sweep, task: str) -> str:
    """Return the metric that a question is about: the first that is shown, or the primary one."""
    if sweep.kind in _OF_IDS:
        sizes = re.search(r"(\d+) pairs", task)
        return f"accuracy_{sizes[1]}" if sizes else "accuracy"
    known = task_of(sweep, task).metrics
    return next((name for name in sweep.columns if name in known), known[0])


def make_verdicts(sweep: Sweep, rows: Sequence[Row]) -> list[Verdict]:
    """Answer the sweep's question for each variant and task that was compared.

    Yes: as large as asked, with a corrected p below 0.05; no: the interval lies below that size.
    """
    question, asked = sweep.question, list[Row]()
    if question is None:
        return []
    tasks = question.tasks or sweep.tasks
    for task in tasks:
        metric = asked_metric(sweep, task)
        own = [row for row in rows if (row.task, row.metric) == (task, metric)]
        own = [row for row in own if not sweep.pairs or row.variant not in sweep.variants]
        last = own[-1].split if own else ""  # a test set comes before a dev set
        asked += [row for row in own if row.split == last and row.change is not None]
    family = question.family or (len(sweep.pairs) or len(sweep.variants) - 1) * len(tasks)
    known = [row.change.p for row in asked if row.change.p is not None]
    corrected = iter(statistics.holm(known, family))
    found = []
    for row in asked:
        change = row.change
        least = question.least[row.task] if isinstance(question.least, dict) else question.least
        unit = least / (100 if is_share(row.metric) else 1)
        unit = unit if task_of(sweep, row.task).greater_is_better else -unit
        ends = change.interval and sorted(end / unit for end in change.interval)
        gain, p = change.mean / unit, None if change.p is None else next(corrected)
        said: Literal["yes", "no", "unknown"] = "unknown"
        if gain >= 1 and p is not None and p < LEVEL:
            said = "yes"
        elif len(change.by_seed) > 1 and (ends[1] if ends else math.inf) < 1:
            said = "no"
        found.append(Verdict(row, change.p, p, said, gain, (ends[0], ends[1]) if ends else None))
    return found
