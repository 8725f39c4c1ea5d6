"""How far a difference between two arms could be chance, of seeds and of examples together."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jat_graph.lab.studies.sums import Counts, Floats, Scorer, resample

CONFIDENCE = 0.95
DRAWS = 4000  # with 1000, the ends of an interval move by a thirtieth of its width with the draws

# Less than this share of resamples on which a measure is defined says nothing.
_ENOUGH = 0.9
# Counts held at a time.
_ROOM = 2**23


@dataclass(frozen=True)
class Interval:
    """What holds the middle 95 % of resampled differences.

    Args:
        low: Lower end.
        high: Upper end.
    """

    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """No difference is shown."""
        return self.low <= 0 <= self.high


def paired_bootstrap(
    arm: Sequence[Scorer], base: Sequence[Scorer], name: str, models: str = ""
) -> Floats:  # [R]
    """Resample the mean difference between two arms, over examples and seeds together.

    Each draw takes examples with replacement, the same for both arms and all seeds, and adds what
    other seeds may do to the mean of S seeds: a draw from Student's distribution with S − 1 degrees
    of freedom and their standard error. So the spread is that of new seeds and new examples at
    once; it is conditional on nothing.

    Seeds are not taken with replacement, as there are few: an interval from three of them would be
    their range, which holds the truth three times in four, not 95 times in 100. Where only seeds
    matter the interval is that of the paired t test; where only examples do, the percentile
    bootstrap. With one seed the spread is that of the examples alone, conditional on that seed.

    Reference:
        Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993; Student's paired t test.
        Bouthillier et al., *Accounting for Variance in Machine Learning Benchmarks*, MLSys 2021,
        say why both count.
    """
    sizes = {scorer.examples for scorer in (*arm, *base)}
    if len(arm) != len(base) or len(sizes) != 1 or 0 in sizes:
        raise ValueError(
            f"arms must share their seeds and examples, got {len(arm)} and {len(base)} seeds, "
            f"and {', '.join(map(str, sorted(sizes))) or 'no'} examples"
        )
    draw = np.random.default_rng(zlib.crc32(name.encode()))
    seed_draw = np.random.default_rng(zlib.crc32((models or name).encode()))
    examples, left, parts = sizes.pop(), DRAWS, []
    while left:
        count = min(left, max(1, _ROOM // examples))
        counts = resample(draw, examples, count)
        parts.append(_differences(arm, base, counts).mean(axis=0))
        left -= count
    whole = _differences(arm, base, np.ones((1, examples), np.intp))[:, 0]
    found: Floats = np.concatenate(parts) + _seed_draws(seed_draw, whole, DRAWS)
    return found


def _differences(arm: Sequence[Scorer], base: Sequence[Scorer], counts: Counts) -> Floats:
    """Return arm less base, ``[S, R]``."""
    pairs = zip(arm, base, strict=True)
    return np.stack([one.scores(counts) - other.scores(counts) for one, other in pairs])


def _seed_draws(draw: np.random.Generator, differences: Floats, count: int) -> Floats:
    """Return what other seeds may add to the mean, ``[R]``: Student's quantiles in random order."""
    seeds = len(differences)
    if seeds == 1:
        return np.zeros(count)
    from scipy.stats import t

    error = differences.std(ddof=1) / np.sqrt(seeds)
    quantiles: Floats = t.ppf((np.arange(count) + 0.5) / count, seeds - 1)
    added: Floats = error * draw.permutation(quantiles)
    return added


def interval(draws: Floats) -> Interval | None:  # [R]
    """Return the interval between the percentiles of resampled differences.

    Reference:
        Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 13.
    """
    known = draws[~np.isnan(draws)]
    if len(known) < _ENOUGH * len(draws):
        return None
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(known, [tail, 100 - tail])
    return Interval(float(low), float(high))
