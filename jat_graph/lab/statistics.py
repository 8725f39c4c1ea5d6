"""Scores over seeds, and how far two arms differ: the one 95 % interval of this library.

The interval of a difference is that of new seeds and new examples at once. Where there are no
examples to resample, it is Student's, of new seeds alone; with one seed it is that of new examples
alone, of this seed.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import numpy as np

from jat_graph.lab.measures import Counts, Floats, Scorer, resample
from jat_graph.lab.tables import show_change

CONFIDENCE = 0.95
DRAWS = 4000  # with 1000, the ends of an interval move by a thirtieth of its width with the draws

# Differences closer than this are one number: scores of whole test sets are multiples of 1e-7 at
# least, and Student's t means nothing where the spread is rounding error.
_SAME = 1e-9
# Less than this share of resamples on which a measure is defined says nothing.
_ENOUGH = 0.9
# Counts held at a time.
_ROOM = 2**23


@dataclass(frozen=True)
class Summary:
    """Scores of one arm over the seeds.

    Args:
        values: One score a seed.
        mean: Their mean.
        std: Their standard deviation (ddof=1); None for one seed.
    """

    values: tuple[float, ...]
    mean: float
    std: float | None


@dataclass(frozen=True)
class Interval:
    """What holds the middle 95 % of resampled differences."""

    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """No difference is shown."""
        return self.low <= 0 <= self.high


@dataclass(frozen=True)
class Difference:
    """How much higher one arm scores than the base, seed by seed.

    Args:
        by_seed: The difference on each seed that both have; of seconds the share of more time.
        interval: The 95 % interval of the mean; None if there is none. (default: None)
        draws: Resampled differences; None where examples could not be resampled. (default: None)

    Reference:
        :func:`jat_graph.lab.statistics.paired_bootstrap`; without examples Student's paired t test.
    """

    by_seed: Mapping[int, float]
    interval: Interval | None = None
    draws: Floats | None = field(default=None, repr=False, compare=False)

    @property
    def values(self) -> tuple[float, ...]:
        """One difference a seed."""
        return tuple(self.by_seed.values())

    @property
    def mean(self) -> float:
        """Their mean."""
        return fmean(self.values)

    @property
    def low(self) -> float | None:
        """Lower end of the interval; None if there is none."""
        return None if self.interval is None else self.interval.low

    @property
    def high(self) -> float | None:
        """Upper end of the interval; None if there is none."""
        return None if self.interval is None else self.interval.high

    @property
    def is_constant(self) -> bool:
        """All seeds differ by the same amount, so Student's t says nothing."""
        return max(self.values) - min(self.values) <= _SAME

    @property
    def is_zero(self) -> bool:
        """No seed differs at all."""
        return max(map(abs, self.values)) <= _SAME

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types, without the draws."""
        ends = {"low": self.low, "high": self.high}
        return {"values": list(self.values), "mean": self.mean, **ends}


def summarize(values: Sequence[float]) -> Summary:
    """Return mean and standard deviation of scores.

    Args:
        values: One score a seed.

    Returns:
        The summary.

    Raises:
        ValueError: If there is no score.
    """
    if not values:
        raise ValueError("values must hold at least one score, got none")
    scores = tuple(float(value) for value in values)
    std = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
    return Summary(scores, float(np.mean(scores)), std)


def paired_difference(arm: Sequence[float], base: Sequence[float]) -> Difference:
    """Compare two arms seed by seed, by their scores alone.

    Args:
        arm: Scores of the arm, one a seed.
        base: Scores of the base, of the same seeds.

    Returns:
        The difference, whose interval is that of new seeds. With one seed, or where all seeds
        differ by the same amount, there is none.

    Raises:
        ValueError: If the arms have no scores, or not equally many.

    Reference:
        ``scipy.stats.ttest_rel(arm, base).confidence_interval(0.95)``.

    Example:
        >>> from jat_graph.training import paired_difference
        >>> difference = paired_difference([71.0, 72.5, 73.0], [70.0, 72.0, 71.0])
        >>> f"{difference.mean:+.1f} ({difference.low:+.1f} to {difference.high:+.1f})"
        '+1.2 (-0.7 to +3.1)'
    """
    if len(arm) != len(base) or not arm:
        raise ValueError(
            f"arm and base must have equally many scores, got {len(arm)} and {len(base)}"
        )
    return over_seeds({seed: float(arm[seed]) - float(base[seed]) for seed in range(len(arm))})


def over_seeds(by_seed: Mapping[int, float]) -> Difference:
    """A difference whose interval is Student's, over the seeds alone."""
    plain = Difference(by_seed)
    if len(by_seed) == 1 or plain.is_constant:
        return plain
    from scipy.stats import ttest_1samp

    low, high = ttest_1samp(plain.values, 0.0).confidence_interval(CONFIDENCE)
    return Difference(by_seed, Interval(float(low), float(high)))


def over_seeds_and_examples(
    by_seed: Mapping[int, float],
    arm: Sequence[Scorer],
    base: Sequence[Scorer],
    name: str,  # of the examples: the same ones are drawn wherever it is the same
    models: str,  # of what the seeds are of: likewise
) -> Difference:
    """A difference whose interval is that of new seeds and new examples at once."""
    draws = paired_bootstrap(arm, base, name, models)
    return Difference(by_seed, interval(draws), draws)


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
    """Arm less base, ``[S, R]``."""
    pairs = zip(arm, base, strict=True)
    return np.stack([one.scores(counts) - other.scores(counts) for one, other in pairs])


def _seed_draws(draw: np.random.Generator, differences: Floats, count: int) -> Floats:
    """What other seeds may add to the mean, ``[R]``: Student's quantiles in random order."""
    seeds = len(differences)
    if seeds == 1:
        return np.zeros(count)
    from scipy.stats import t

    error = differences.std(ddof=1) / np.sqrt(seeds)
    quantiles: Floats = t.ppf((np.arange(count) + 0.5) / count, seeds - 1)
    added: Floats = error * draw.permutation(quantiles)
    return added


def interval(draws: Floats) -> Interval | None:  # [R]
    """The interval between the percentiles of resampled differences.

    Reference:
        Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 13.
    """
    known = draws[~np.isnan(draws)]
    if len(known) < _ENOUGH * len(draws):
        return None
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(known, [tail, 100 - tail])
    return Interval(float(low), float(high))


def verdict(
    name: str,
    metric: str,
    difference: Difference,
    base: str = "base",
    *,
    greater_is_better: bool = True,
) -> str:
    """One sentence that says what a difference shows."""
    seeds, change = len(difference.by_seed), f"{show_change(difference.mean, metric)} {metric}"
    found = difference.interval
    ends = found and f"{show_change(found.low, metric)} to {show_change(found.high, metric)}"
    if seeds == 1:
        chance = "no measure of chance" if found is None else "no measure of what other seeds do"
        of_examples = f" (95 % interval of new examples alone {ends})" if found else ""
        return (
            f"Nothing can be said about {name} against {base}: one seed gives {change}"
            f"{of_examples}, and {chance}; use at least two."
        )
    if difference.is_zero:
        return (
            f"No difference: {name} and {base} have the same {metric} on each of {seeds} seeds; "
            "look at the scores whether both have learned everything, or nothing."
        )
    if found is None:
        why = (
            f"on each of {seeds} seeds; with no spread at all"
            if difference.draws is None
            else f"over {seeds} seeds; where {metric} is undefined on other examples"
        )
        return f"{name} differs from {base} by {change} {why} there is no confidence interval."
    whole = f"95 % interval {ends}, {seeds} seeds"
    if found.holds_zero:
        return f"No difference shown between {name} and {base}: {change} ({whole})."
    word = "better" if (difference.mean > 0) == greater_is_better else "worse"
    return f"{name} is {word} than {base}: {change} ({whole})."
