"""Measures as functions of sums over examples, so that a thousand resamples cost no more than one.

A measure that depends on sums over the examples alone, as accuracy, F1 and Pearson's correlation
do, is known on a resample as soon as it is known how often each example was drawn. No such form is
trusted: it is used where it gives the measure's own numbers, on all examples and on some drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.intp]
Measure: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]

_TOLERANCE = 1e-6
_CONSTANT = 1e-12  # a variance below this share of the mean square is rounding error


@dataclass(frozen=True)
class Scorer:
    """The score of one run on any resample of its examples."""

    values: Floats  # what is summed of each example, [N, F]
    combine: Callable[[Floats], Floats]  # sums [R, F] to scores [R]

    def scores(self, counts: Counts) -> Floats:
        """Score resamples ``[R, N]``, by how often each example was drawn: ``[R]``."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.combine(counts @ self.values)


def make_scorer(
    measure: Measure, metric: str, said: Sequence[Any], right: Sequence[Any]
) -> Scorer | None:
    """Return what scores resamples of what a model said as the measure does; None if none does."""

    def score(indices: Sequence[int]) -> float:
        drawn = ([side[index] for index in indices] for side in (said, right))
        return float(measure(*drawn).get(metric, np.nan))

    every = range(len(right))
    drawn = resample(np.random.default_rng(0), len(right), 1)
    trials = np.concatenate([np.ones((1, len(right)), np.intp), drawn])
    truth = [score(np.repeat(every, row).tolist()) for row in trials]
    for make in (_of_numbers, _of_sets, lambda *_: _mean(np.array([score([n]) for n in every]))):
        found: Scorer | None = make(metric, said, right)
        if found is not None and np.allclose(
            found.scores(trials), truth, _TOLERANCE, _TOLERANCE, equal_nan=True
        ):
            return found
    return None


def resample(draw: np.random.Generator, examples: int, count: int) -> Counts:
    """Draw resamples as large as the set: how often each has each example, ``[R, N]``."""
    drawn = draw.integers(examples, size=(count, examples))
    drawn += examples * np.arange(count)[:, None]
    return np.bincount(drawn.ravel(), minlength=count * examples).reshape(count, examples)


def _mean(scores: Floats) -> Scorer:
    """The mean of the scores of single examples, undefined ones left out."""
    known = ~np.isnan(scores)
    return Scorer(np.stack([np.where(known, scores, 0.0), known], axis=1), _ratio)


def _of_sets(metric: str, said: Sequence[Any], right: Sequence[Any]) -> Scorer | None:
    """F1 of sets, as of the spans that are found in a sentence."""
    answers = [*said, *right]
    nested = all(isinstance(one, list) and all(isinstance(e, list) for e in one) for one in answers)
    if metric != "f1" or not nested:
        return None
    pairs = zip(said, right, strict=True)
    rows = [(sum(one in wanted for one in own), len(own), len(wanted)) for own, wanted in pairs]
    return Scorer(np.array(rows, float), lambda sums: _f1(*sums.T))


def _of_numbers(metric: str, said: Sequence[Any], right: Sequence[Any]) -> Scorer | None:
    """A measure of numbers, or of lists of them where an example has several rows."""
    own, wanted = ([one if isinstance(one, list) else [one] for one in x] for x in (said, right))
    sizes = [len(one) for one in own]
    flat = [[entry for one in side for entry in one] for side in (own, wanted)]
    numbers = all(isinstance(entry, int | float) for side in flat for entry in side)
    if not numbers or sizes != [len(one) for one in wanted]:
        return None
    x, y = np.array(flat, float)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    columns: list[Any]
    combine: Callable[[Floats], Floats]
    match metric:
        case "accuracy":
            columns, combine = [x == y, np.ones_like(x)], _ratio
        case "exact_match":
            return _mean(np.bincount(owner, x != y, len(sizes)) == 0)
        case "f1":
            columns, combine = _hits(x, y, np.ones(1)), lambda sums: _f1(*sums.T)
        case "macro_f1" | "matthews":
            columns = _hits(x, y, np.unique(flat))
            combine = _mean_f1 if metric == "macro_f1" else _matthews
        case "pearson":
            # medians make what is constant exactly 0, and large offsets small
            x, y = x - np.median(x), y - np.median(y)
            columns, combine = [x, y, x * x, y * y, x * y, np.ones_like(x)], _pearson
        case _:
            return None
    parts = [np.bincount(owner, column, len(sizes)) for column in columns]
    return Scorer(np.stack(parts, axis=1), combine)


def _hits(said: Floats, right: Floats, classes: Floats) -> list[Any]:
    """Where each class was hit, said and right."""
    said, right = said == classes[:, None], right == classes[:, None]
    return [*(said & right), *said, *right]


def _mean_f1(sums: Floats) -> Floats:
    hit, said, right = np.split(sums, 3, axis=-1)
    present = said + right > 0
    return (_f1(hit, said, right) * present).sum(-1) / present.sum(-1)


def _matthews(sums: Floats) -> Floats:
    hit, said, right = np.split(sums, 3, axis=-1)
    count = right.sum(-1)
    shared = hit.sum(-1) * count - (said * right).sum(-1)
    return _correlation(shared, count**2 - (said**2).sum(-1), count**2 - (right**2).sum(-1))


def _pearson(sums: Floats) -> Floats:
    x, y, xx, yy, xy = (sums / sums[:, -1:]).T[:5]
    spread = [np.where(s - m**2 > _CONSTANT * s, s - m**2, 0.0) for s, m in ((xx, x), (yy, y))]
    return _correlation(xy - x * y, *spread)


def _ratio(sums: Floats) -> Floats:
    return sums[:, 0] / sums[:, 1]


def _f1(hit: Floats, said: Floats, right: Floats) -> Floats:
    total = said + right
    return np.where(total > 0, 2 * hit / total, 0.0)


def _correlation(shared: Floats, said: Floats, right: Floats) -> Floats:
    """Settle what is constant as the tasks' metrics do: 0 if said, NaN if right."""
    value = np.where(said > 0, shared / np.sqrt(said * right), 0.0)
    return np.where(right > 0, value, np.nan)
