"""Measures as functions of sums over examples, so that a thousand resamples cost no more than one.

A measure that depends on sums over the examples alone, as accuracy, F1 and Pearson's correlation
do, is known on a resample as soon as it is known how often each example was drawn. No shortcut is
trusted: it is used where it gives the measure's own numbers, on all of the examples and on some
that are drawn; otherwise the measure itself is called on each resample.
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

_TOLERANCE = 1e-6
_CONSTANT = 1e-12  # a variance below this share of the mean square is rounding error


class Scorer(Protocol):
    """What scores one run on any resample of its examples."""

    @property
    def examples(self) -> int:
        """Number of examples N."""

    def scores(self, counts: Counts) -> Floats:
        """Score resamples ``[R, N]``, by how often each example was drawn: ``[R]``."""


@dataclass(frozen=True)
class Sums:
    """A measure as a function of sums over examples.

    Args:
        values: What is summed of each example, ``[N, F]``.
        combine: What turns sums ``[R, F]`` into scores ``[R]``.
    """

    values: Floats
    combine: Callable[[Floats], Floats]

    @property
    def examples(self) -> int:
        """Number of examples N."""
        return len(self.values)

    def scores(self, counts: Counts) -> Floats:
        """Score resamples ``[R, N]``."""
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
        """Score resamples ``[R, N]`` one by one."""
        places = np.arange(self.examples)
        return np.array([self.score(np.repeat(places, row).tolist()) for row in counts])

    def score(self, places: Sequence[int]) -> float:
        """Score some examples."""
        said, right = ([side[place] for place in places] for side in (self.said, self.right))
        return float(self.measure(said, right).get(self.metric, np.nan))


def scorer(measure: Measure, metric: str, said: Sequence[Any], right: Sequence[Any]) -> Scorer:
    """Return the quickest way to score resamples that gives the measure's own numbers."""
    slow = Called(measure, metric, said, right)
    drawn = resample(np.random.default_rng(0), len(right), 1)
    trials = np.concatenate([np.ones((1, len(right)), np.intp), drawn])
    truth = slow.scores(trials)
    for shortcut in (_of_numbers, _of_sets, _mean_of_examples):
        found = shortcut(slow)
        if found is not None and np.allclose(
            found.scores(trials), truth, _TOLERANCE, _TOLERANCE, equal_nan=True
        ):
            return found
    return slow


def resample(draw: np.random.Generator, examples: int, count: int) -> Counts:
    """Draw resamples as large as the set: how often each has each example, ``[R, N]``."""
    drawn = draw.integers(examples, size=(count, examples))
    drawn += examples * np.arange(count)[:, None]
    return np.bincount(drawn.ravel(), minlength=count * examples).reshape(count, examples)


def _mean_of_examples(slow: Called) -> Sums:
    """The mean of the scores of single examples, undefined ones left out."""
    each = np.array([slow.score([place]) for place in range(slow.examples)])
    known = ~np.isnan(each)
    return Sums(np.stack([np.where(known, each, 0.0), known], axis=1), _ratio)


def _of_sets(slow: Called) -> Sums | None:
    """F1 of sets, as of the spans that are found in a sentence."""
    answers = [*slow.said, *slow.right]
    nested = all(isinstance(one, list) and all(isinstance(e, list) for e in one) for one in answers)
    if slow.metric not in ("f1", "precision", "recall") or not nested:
        return None
    pairs = zip(slow.said, slow.right, strict=True)
    rows = [(sum(one in right for one in said), len(said), len(right)) for said, right in pairs]
    below = {"precision": 1, "recall": 2}.get(slow.metric)
    if below is None:
        return Sums(np.array(rows, float), lambda sums: _f1(*sums.T))
    return Sums(np.array(rows, float), lambda sums: np.nan_to_num(sums[:, 0] / sums[:, below]))


class _Rows(NamedTuple):
    """Predictions and labels as numbers, and the example that each row belongs to."""

    said: Floats
    right: Floats
    owner: Counts
    examples: int

    def sums(self, columns: Sequence[NDArray[Any]], combine: Callable[[Floats], Floats]) -> Sums:
        """Add rows up to examples."""
        parts = [np.bincount(self.owner, column, self.examples) for column in columns]
        return Sums(np.stack(parts, axis=1), combine)

    def classes(self, combine: Callable[[Floats, Floats, Floats], Floats]) -> Sums:
        """Count how often each class was hit, said and right, ``[R, C]`` each."""
        classes = np.unique(np.concatenate([self.said, self.right]))[:, None]
        said, right = self.said == classes, self.right == classes
        table = np.concatenate([said & right, said, right])
        return self.sums(list(table), lambda sums: combine(*np.split(sums, 3, axis=-1)))


def _of_numbers(slow: Called) -> Sums | None:
    """A measure of numbers, or of lists of them where an example has several rows."""
    said, right = (
        [one if isinstance(one, list) else [one] for one in side]
        for side in (slow.said, slow.right)
    )
    sizes = [len(one) for one in said]
    flat = [[entry for one in side for entry in one] for side in (said, right)]
    numbers = all(isinstance(entry, int | float) for side in flat for entry in side)
    if slow.metric not in _SUMS or not numbers or sizes != [len(one) for one in right]:
        return None
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return _SUMS[slow.metric](_Rows(*np.array(flat, float), owner, len(sizes)))


def _exact_match(rows: _Rows) -> Sums:
    wrong = np.bincount(rows.owner, rows.said != rows.right, rows.examples)
    return Sums(np.stack([wrong == 0, np.ones(rows.examples)], axis=1).astype(float), _ratio)


def _f1_of_ones(rows: _Rows) -> Sums:
    said, right = rows.said == 1, rows.right == 1
    return rows.sums([said & right, said, right], lambda sums: _f1(*sums.T))


def _macro_f1(rows: _Rows) -> Sums:
    def mean(hit: Floats, said: Floats, right: Floats) -> Floats:
        present = said + right > 0
        total: Floats = (_f1(hit, said, right) * present).sum(-1) / present.sum(-1)
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


def _f1(hit: Floats, said: Floats, right: Floats) -> Floats:
    total = said + right
    return np.where(total > 0, 2 * hit / total, 0.0)


def _variance(squares: Floats, mean: Floats) -> Floats:
    variance = squares - mean**2
    return np.where(variance > _CONSTANT * squares, variance, 0.0)


def _correlation(shared: Floats, said: Floats, right: Floats) -> Floats:
    """Settle what is constant as the tasks' metrics do: 0 if said, NaN if right."""
    value = np.where(said > 0, shared / np.sqrt(said * right), 0.0)
    return np.where(right > 0, value, np.nan)


_SUMS: dict[str, Callable[[_Rows], Sums]] = {
    "accuracy": lambda rows: rows.sums([rows.said == rows.right, np.ones_like(rows.said)], _ratio),
    "exact_match": _exact_match,
    "f1": _f1_of_ones,
    "macro_f1": _macro_f1,
    "matthews": _matthews,
    "pearson": _pearson,
}
