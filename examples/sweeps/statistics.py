"""How far two variants differ: one 95 % interval, of new seeds and new examples at once.

Without examples to resample it is Student's, of new seeds alone; with one seed, of new examples.

A measure that depends on sums over the examples alone, as accuracy, F1 and Pearson's correlation
do, is known on a resample as soon as it is known how often each example was drawn. No such form is
trusted: it is used where it gives the measure's own numbers, on all examples and on some drawn.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t, ttest_1samp
from statsmodels.stats.multitest import multipletests

Floats: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.intp]
Measure: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], Mapping[str, float]]

_TOLERANCE = 1e-6
_CONSTANT = 1e-12  # a variance below this share of the mean square is rounding error

CONFIDENCE = 0.95
DRAWS = 4000  # with 1000, the ends of an interval move by a thirtieth of its width with the draws

_SAME = 1e-9  # differences that are closer are rounding error, of which Student's t says nothing
_ENOUGH = 0.9  # share of resamples on which a measure must be defined for anything to be said
_ROOM = 2**23  # counts that are held at a time


@dataclass(frozen=True)
class Difference:
    """How much higher a variant scores than its base on each seed, of seconds the share of more."""

    by_seed: Mapping[int, float]
    interval: tuple[float, float] | None = None
    draws: Floats | None = field(default=None, repr=False, compare=False)

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return fmean(self.by_seed.values())

    @property
    def is_shown(self) -> bool:
        """Whether there are several seeds, and the interval does not hold 0."""
        if self.interval is None or len(self.by_seed) < 2:
            return False
        return not self.interval[0] <= 0 <= self.interval[1]

    @property
    def p(self) -> float | None:
        """P of the paired t test over the seeds, not corrected; None where it has none."""
        values = list(self.by_seed.values())
        if len(values) < 2:
            return None
        if max(map(abs, values)) <= _SAME:
            return 1.0
        if max(values) - min(values) <= _SAME:
            return None
        return float(ttest_1samp(values, 0.0).pvalue)


def over_seeds(by_seed: Mapping[int, float]) -> Difference:
    """Return a difference whose interval is Student's, of new seeds alone."""
    values = list(by_seed.values())
    if len(values) < 2 or max(values) - min(values) <= _SAME:
        return Difference(by_seed)
    low, high = ttest_1samp(values, 0.0).confidence_interval(CONFIDENCE)
    return Difference(by_seed, (float(low), float(high)))


def over_seeds_and_examples(
    by_seed: Mapping[int, float],
    ours: Sequence[Scorer | None],
    theirs: Sequence[Scorer | None],
    examples: str,
    models: str,
) -> Difference:
    """Return a difference with draws, or one of new seeds alone where not all score resamples."""
    if None in (*ours, *theirs):
        return over_seeds(by_seed)
    draws = paired_bootstrap(ours, theirs, examples, models)
    return Difference(by_seed, percentiles(draws), draws)


def mean_difference(changes: Sequence[Difference | None]) -> Difference | None:
    """Return the mean of the differences on several tasks, which are resampled apart."""
    if None in changes:
        return None
    shared = sorted(set.intersection(*(set(change.by_seed) for change in changes)))
    if not shared:
        return None
    by_seed = {seed: fmean(change.by_seed[seed] for change in changes) for seed in shared}
    if any(set(change.by_seed) != set(shared) for change in changes):
        return Difference(by_seed)  # the draws are of other seeds than the mean's
    draws = [change.draws for change in changes if change.draws is not None]
    if len(draws) < len(changes):
        return over_seeds(by_seed)
    mean = np.mean(draws, axis=0)
    return Difference(by_seed, percentiles(mean), mean)


def paired_bootstrap(
    ours: Sequence[Scorer],  # of the variant, one a seed
    theirs: Sequence[Scorer],  # of the base
    examples: str,  # their name: the same are drawn wherever it is the same
    models: str,  # what the seeds are of, likewise
) -> Floats:  # [R]
    """Resample the mean difference of two variants, over examples and seeds together.

    Each draw takes examples with replacement, the same for both variants and all seeds, and adds
    what other seeds may do to the mean of S seeds: a draw from Student's distribution with S − 1
    degrees of freedom and their standard error. Seeds are not taken with replacement: an interval
    from three of them would be their range, which holds the truth three times in four.

    Reference:
        Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993; Bouthillier et al.,
        *Accounting for Variance in Machine Learning Benchmarks*, MLSys 2021.
    """
    sizes = {len(scorer.values) for scorer in (*ours, *theirs)}
    if len(ours) != len(theirs) or len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            f"variants must share their seeds and examples, got {len(ours)} and {len(theirs)} "
            f"seeds, and {', '.join(map(str, sorted(sizes))) or 'no'} examples"
        )
    size = sizes.pop()
    source, left, parts = np.random.default_rng(zlib.crc32(examples.encode())), DRAWS, []
    while left:
        count = min(left, max(1, _ROOM // size))
        parts.append(_differences(ours, theirs, resample(source, size, count)).mean(axis=0))
        left -= count
    draws: Floats = np.concatenate(parts)
    seeds = len(ours)
    if seeds > 1:
        whole = _differences(ours, theirs, np.ones((1, size), np.intp))[:, 0]
        error = whole.std(ddof=1) / np.sqrt(seeds)
        quantiles = t.ppf((np.arange(DRAWS) + 0.5) / DRAWS, seeds - 1)
        order = np.random.default_rng(zlib.crc32((models or examples).encode()))
        draws = draws + error * order.permutation(quantiles)
    return draws


def _differences(ours: Sequence[Scorer], theirs: Sequence[Scorer], counts: Counts) -> Floats:
    """The variant less its base, ``[S, R]``."""
    pairs = zip(ours, theirs, strict=True)
    return np.stack([one.scores(counts) - other.scores(counts) for one, other in pairs])


def percentiles(draws: Floats) -> tuple[float, float] | None:
    """Return the ends of what holds the middle 95 % of draws; None where too few are defined."""
    known = draws[~np.isnan(draws)]
    if len(known) < _ENOUGH * len(draws):
        return None
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(known, [tail, 100 - tail])
    return float(low), float(high)


def holm(values: Sequence[float], family: int) -> list[float]:
    """Correct p-values by Holm's method; those of the family made elsewhere count as largest."""
    if not values:
        return []
    padded = [*values, *[1.0] * (family - len(values))]
    return [float(p) for p in multipletests(padded, method="holm")[1][: len(values)]]


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
