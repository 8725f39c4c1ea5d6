"""How far two variants differ: one 95 % interval, of new seeds and new examples at once.

Without examples to resample it is Student's, of new seeds alone; with one seed, of new examples.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
from scipy.stats import t, ttest_1samp
from statsmodels.stats.multitest import multipletests

from examples.sweeps.measures import Counts, Floats, Scorer, resample

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
