"""Measures as functions of sums over examples, so that a thousand resamples cost no more than one.

A measure that depends on sums over the examples only, as accuracy, F1 and Pearson's correlation do,
is known on a resample as soon as it is known how often each example was drawn: sums are a matrix
product. No shortcut is trusted: it is used where it gives the measure's own numbers, on all of the
examples and on some drawn at random; otherwise the measure itself is called on each resample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.intp]
Measure: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]

_TRIALS = 1  # beside all examples
_TOLERANCE = 1e-6
# Below this share of the mean square, a variance is rounding error.
_CONSTANT = 1e-12


class Scorer(Protocol):
    """What gives the score of one run on any resample of its examples."""

    @property
    def examples(self) -> int:
        """Number of examples N."""

    def scores(self, counts: Counts) -> Floats:  # [R]
        """Score resamples."""


@dataclass(frozen=True)
class Sums:
    """A measure as a function of sums over examples."""

    values: Floats  # what is summed of each example, [N, F]
    combine: Callable[[Floats], Floats]  # sums [R, F] to scores [R]

    @property
    def examples(self) -> int:
        """Number of examples N."""
        return len(self.values)

    def scores(self, counts: Counts) -> Floats:
        """Score resamples by their sums."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.combine(counts @ self.values)


@dataclass(frozen=True)
class Called:
    """A measure that is called on every resample of what a model said and what is right."""

    measure: Measure
    metric: str
    said: Sequence[Any]
    right: Sequence[Any]

    @property
    def examples(self) -> int:
        """Number of examples N."""
        return len(self.right)

    def scores(self, counts: Counts) -> Floats:
        """Score resamples one by one."""
        places = np.arange(self.examples)
        return np.array([self.score(np.repeat(places, row).tolist()) for row in counts])

    def score(self, places: Sequence[int]) -> float:
        """Score some examples."""
        said, right = (
            [self.said[place] for place in places],
            [self.right[place] for place in places],
        )
        return float(self.measure(said, right).get(self.metric, np.nan))


def scorer(measure: Measure, metric: str, said: Sequence[Any], right: Sequence[Any]) -> Scorer:
    """Return the quickest way to score resamples that gives the measure's own numbers."""
    slow = Called(measure, metric, said, right)
    draw = np.random.default_rng(0)
    trials = np.stack([np.ones(len(right), np.intp), *resample(draw, len(right), _TRIALS)])
    truth = slow.scores(trials)
    for shortcut in (_by_rows, _by_sets, _mean_of_examples):
        found = shortcut(slow)
        if found is not None and np.allclose(
            found.scores(trials), truth, _TOLERANCE, _TOLERANCE, equal_nan=True
        ):
            return found
    return slow


def resample(draw: np.random.Generator, examples: int, count: int) -> Counts:  # [R, N]
    """Draw resamples, each as large as the set."""
    drawn = draw.integers(examples, size=(count, examples))
    drawn += examples * np.arange(count)[:, None]
    return np.bincount(drawn.ravel(), minlength=count * examples).reshape(count, examples)


def _mean_of_examples(slow: Called) -> Sums:
    """Return the mean of the scores of single examples, undefined ones left out."""
    each = np.array([slow.score([place]) for place in range(slow.examples)])
    known = ~np.isnan(each)
    return Sums(np.stack([np.where(known, each, 0.0), known], axis=1), _ratio)


def _by_rows(slow: Called) -> Sums | None:
    """Return a measure of numbers."""
    rows = _Rows.of(slow.said, slow.right)
    return _SUMS[slow.metric](rows) if rows is not None and slow.metric in _SUMS else None


def _by_sets(slow: Called) -> Sums | None:
    """Return a measure of sets, as of the spans that are found in a sentence."""
    if slow.metric not in _OF_SETS or not _are_sets(slow.said) or not _are_sets(slow.right):
        return None
    pairs = zip(slow.said, slow.right, strict=True)
    values = [
        (sum(entry in right for entry in said), len(said), len(right)) for said, right in pairs
    ]
    return Sums(np.array(values, float), _OF_SETS[slow.metric])


def _are_sets(answers: Sequence[Any]) -> bool:
    return all(isinstance(a, list) and all(isinstance(one, list) for one in a) for a in answers)


class _Rows(NamedTuple):
    """Predictions and labels as numbers, and the example that each row belongs to."""

    said: Floats
    right: Floats
    owner: Counts
    examples: int

    @classmethod
    def of(cls, said: Sequence[Any], right: Sequence[Any]) -> _Rows | None:
        """Read numbers, or lists of them where an example has several rows; None of all else."""
        nested = [one if isinstance(one, list) else [one] for one in said]
        others = [one if isinstance(one, list) else [one] for one in right]
        sizes = [len(one) for one in nested]
        flat = [entry for part in (nested, others) for one in part for entry in one]
        numbers = all(isinstance(entry, int | float) for entry in flat)
        if not numbers or sizes != [len(one) for one in others]:
            return None
        both = np.array(flat, float).reshape(2, -1)
        return cls(both[0], both[1], np.repeat(np.arange(len(sizes)), sizes), len(sizes))

    def sums(self, columns: Sequence[NDArray[Any]], combine: Callable[[Floats], Floats]) -> Sums:
        """Add rows up to examples."""
        parts = [np.bincount(self.owner, column, self.examples) for column in columns]
        return Sums(np.stack(parts, axis=1), combine)

    def classes(self, combine: Callable[[Floats, Floats, Floats], Floats]) -> Sums:
        """Count, for each class, how often it was hit, said and right: ``[..., C]`` each."""
        classes = np.unique(np.concatenate([self.said, self.right]))[:, None]
        said, right = self.said == classes, self.right == classes
        table = np.concatenate([said & right, said, right])
        return self.sums(list(table), lambda sums: combine(*np.split(sums, 3, axis=-1)))


def _accuracy(rows: _Rows) -> Sums:
    return rows.sums([rows.said == rows.right, np.ones_like(rows.said)], _ratio)


def _exact_match(rows: _Rows) -> Sums:
    wrong = np.bincount(rows.owner, rows.said != rows.right, rows.examples)
    return Sums(np.stack([wrong == 0, np.ones(rows.examples)], axis=1).astype(float), _ratio)


def _f1(rows: _Rows) -> Sums:
    said, right = rows.said == 1, rows.right == 1
    return rows.sums([said & right, said, right], lambda sums: _class_f1(*sums.T))


def _macro_f1(rows: _Rows) -> Sums:
    def mean(hit: Floats, said: Floats, right: Floats) -> Floats:
        present = said + right > 0
        total: Floats = (_class_f1(hit, said, right) * present).sum(-1) / present.sum(-1)
        return total

    return rows.classes(mean)


def _matthews(rows: _Rows) -> Sums:
    def correlation(hit: Floats, said: Floats, right: Floats) -> Floats:
        count = right.sum(-1)
        shared = hit.sum(-1) * count - (said * right).sum(-1)
        return _correlation(shared, count**2 - (said**2).sum(-1), count**2 - (right**2).sum(-1))

    return rows.classes(correlation)


def _pearson(rows: _Rows) -> Sums:
    def correlation(sums: Floats) -> Floats:
        x, y, xx, yy, xy = (sums / sums[:, -1:]).T[:5]
        return _correlation(xy - x * y, _variance(xx, x), _variance(yy, y))

    # medians make what is constant exactly 0, and large offsets small
    x, y = rows.said - np.median(rows.said), rows.right - np.median(rows.right)
    return rows.sums([x, y, x * x, y * y, x * y, np.ones_like(x)], correlation)


def _ratio(sums: Floats) -> Floats:
    quotient: Floats = sums[:, 0] / sums[:, 1]
    return quotient


def _class_f1(hit: Floats, said: Floats, right: Floats) -> Floats:
    total = said + right
    return np.where(total > 0, 2 * hit / total, 0.0)


def _variance(squares: Floats, mean: Floats) -> Floats:
    variance = squares - mean**2
    return np.where(variance > _CONSTANT * squares, variance, 0.0)


def _correlation(shared: Floats, said: Floats, right: Floats) -> Floats:
    """Settle what is constant as :mod:`jat_graph.tasks.metrics` does: 0 if said, NaN if right."""
    value = np.where(said > 0, shared / np.sqrt(said * right), 0.0)
    return np.where(right > 0, value, np.nan)


_SUMS: dict[str, Callable[[_Rows], Sums]] = {
    "accuracy": _accuracy,
    "exact_match": _exact_match,
    "f1": _f1,
    "macro_f1": _macro_f1,
    "matthews": _matthews,
    "pearson": _pearson,
}

_OF_SETS: dict[str, Callable[[Floats], Floats]] = {
    "f1": lambda sums: _class_f1(*sums.T),
    "precision": lambda sums: np.nan_to_num(sums[:, 0] / sums[:, 1]),
    "recall": lambda sums: np.nan_to_num(sums[:, 0] / sums[:, 2]),
}
