"""Tell whether two variants that a run script trained differ, seed by seed and row by row.

``python -m examples.compare --base runs/base-* --other runs/stones-*`` takes folders of runs, which
are paired by their seeds. The 95 % interval is of new seeds and new rows at once; with one seed it
is of new rows alone, and where no answers were kept, as of language models, of new seeds alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from examples.arguments import RUN_FILE
from examples.options import example, option
from examples.report import signed_text
from examples.sweeps import statistics
from examples.sweeps.rows import is_share
from examples.tasks import get_task
from examples.tasks.metrics import score_answers, score_classes, score_numbers, score_spans
from jat_graph.core.files import read_object

# By scores that tell what kind of run it was: how answers to data of one's own are measured.
MEASURES: dict[str, statistics.Measure] = {
    "exact_match": score_answers,
    "pearson": score_numbers,
    "accuracy": partial(score_classes, names=("accuracy", "macro_f1")),
    "f1": score_spans,
}


@dataclass
class Options:
    """The folders of the runs."""

    base: list[str] = option("Folders of finished runs, one a seed.")
    other: list[str] = option("Folders of runs of the other variant, with the same seeds.")
    metric: str | None = option("Score to compare, such as macro_f1. Default: the task's.", None)
    split: str | None = option("validation, held_out or test. Default: the first of them.", None)


class Run(NamedTuple):
    """What a run left in its folder."""

    options: dict[str, Any]
    scores: dict[str, float]
    answers: dict[str, dict[str, list[Any]]]  # by split, what was said and what is right


@example(Options)
def main(options: Options) -> Iterator[str]:
    """Compare two variants of a model on the rows that both were evaluated on."""
    base, other = read_runs("base", options.base), read_runs("other", options.other)
    if [*base] != [*other]:
        got = f"{[*base]} and {[*other]}"
        raise ValueError(f"base and other must have the same seeds, got {got}")
    runs, first = [*base.values(), *other.values()], next(iter(base.values()))
    split = options.split or next(iter(first.answers), "validation")
    prefix = "test" if split == "test" else "eval"
    kind = next((name for name in MEASURES if f"{prefix}_{name}" in first.scores), "perplexity")
    task = get_task(named) if (named := first.options["task_name"]) else None
    metric = options.metric or (task.primary_metric if task else kind)
    values = [run.scores.get(f"{prefix}_{metric}") for run in runs]
    if None in values:
        raise ValueError(f"all runs must have {prefix}_{metric}, got {', '.join(first.scores)}")
    halves = values[: len(base)], values[len(base) :]
    changes = {seed: ours - theirs for seed, theirs, ours in zip(base, *halves, strict=True)}
    means = [fmean(half) * (100 if is_share(metric) else 1) for half in halves]
    place = f"{metric} of {split}, seeds {', '.join(map(str, base))}"
    yield f"{place}: base {means[0]:.2f}, other {means[1]:.2f}"
    yield differing(base, other)
    if not all(split in run.answers for run in runs):
        yield describe(statistics.over_seeds(changes), metric)
        return
    right = first.answers[split]["right"]
    if any(run.answers[split]["right"] != right for run in runs):
        raise ValueError(f"all runs must be evaluated on the same rows of {split}")
    said = [run.answers[split]["said"] for run in runs]
    measure = task.measure if task else MEASURES[kind]
    made = [statistics.make_scorer(measure, metric, own, right) for own in said]
    theirs, ours = made[: len(base)], made[len(base) :]
    found = statistics.over_seeds_and_examples(changes, ours, theirs, "rows", "seeds")
    yield describe(found, metric)
    if said[: len(base)] == said[len(base) :]:
        yield "Both give the same answer on every row: train longer, or take harder rows."
    elif kind == "accuracy" and not isinstance(right[0], list):
        yield from count_rows(said, right)


def read_runs(name: str, folders: Sequence[str]) -> dict[int, Run]:
    """Return runs by their seeds, in rising order."""
    runs: dict[int, Run] = {}
    for folder in map(Path, folders):
        if not (folder / "all_results.json").is_file():
            raise ValueError(f"{name} must be folders of finished runs, got {folder}")
        run = read_object(folder / RUN_FILE, "run")
        if not {"seed", "task_name"} <= {*run}:
            raise ValueError(f"{name} must be folders of run scripts, got {folder}")
        if run["seed"] in runs:
            raise ValueError(f"{name} must have one run a seed, got two of seed {run['seed']}")
        scores = read_object(folder / "all_results.json", "results")
        answers = read_object(folder / "answers.json", "answers")
        runs[run["seed"]] = Run(run, scores, answers)
    return dict(sorted(runs.items()))


def differing(base: dict[int, Run], other: dict[int, Run]) -> str:
    """Say in which options two variants differ; seeds are those of a pair."""
    found: dict[str, tuple[Any, Any]] = {}
    for seed, own in base.items():
        ours, theirs = other[seed].options, own.options
        names = (name for name in theirs | ours if theirs.get(name) != ours.get(name))
        found |= {name: (theirs.get(name), ours.get(name)) for name in names}
    said = [f"{name} {theirs!r} and {ours!r}" for name, (theirs, ours) in found.items()]
    return f"They differ in {'; '.join(said)}." if said else "They differ in no option."


def describe(difference: statistics.Difference, metric: str) -> str:
    """Say how large a difference is, and what that shows."""
    text = f"other less base: {signed_text(difference.mean, metric)}"
    if difference.interval is not None:
        low, high = (signed_text(end, metric) for end in difference.interval)
        text += f", 95 % interval {low} to {high}"
    if len(difference.by_seed) < 2:
        return f"{text}: one seed shows nothing, as another may turn it round; take three or more"
    return f"{text}: {'a' if difference.is_shown else 'no'} difference is shown"


def count_rows(said: Sequence[list[Any]], right: list[Any]) -> Iterator[str]:
    """Say on how many rows one side alone is right, and how many rows a difference takes.

    Reference:
        Connor, *Sample Size for Testing Differences in Proportions for the Paired-Sample Design*,
        Biometrics 43, 1987: McNemar's test, two-sided at 5 %, with a power of 80 %.
    """
    theirs, ours = np.split(np.array(said) == np.array(right), 2)
    share = float((theirs != ours).mean())
    two_sided, power = norm.ppf([1 - 0.05 / 2, 0.8])
    yield f"On {100 * share:.1f} % of the {len(right):,} rows one of the two alone is right."
    for delta in (size for size in (0.01, 0.02, 0.05) if size < share):
        rows = ((two_sided * share**0.5 + power * (share - delta**2) ** 0.5) / delta) ** 2
        yield f"{rows:,.0f} rows show a true difference of {delta:g} with a power of 80 %."


if __name__ == "__main__":
    main()
