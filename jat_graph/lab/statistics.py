"""Mean, spread, and the paired difference between two arms of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95

# Differences closer than this are one number: scores of whole test sets are multiples of 1e-7 at
# least, and Student's t means nothing where the spread is rounding error.
_SAME = 1e-9


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
class Difference:
    """How much higher one arm scores than the base, seed by seed.

    Args:
        values: One difference a seed.
        mean: Their mean.
        low: Lower end of the 95 % confidence interval of the mean; None if there is none.
        high: Upper end.
        p_value: Of the paired t test, two-sided; None if there is none.

    Reference:
        Student's paired t test: ``scipy.stats.ttest_rel``.
    """

    values: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    p_value: float | None

    @property
    def is_constant(self) -> bool:
        """All seeds differ by the same amount, so Student's t says nothing."""
        return max(self.values) - min(self.values) <= _SAME

    @property
    def is_zero(self) -> bool:
        """No seed differs at all."""
        return max(map(abs, self.values)) <= _SAME


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
    """Compare two arms seed by seed.

    Args:
        arm: Scores of the arm, one a seed.
        base: Scores of the base, of the same seeds.

    Returns:
        The difference. With one seed, or where all seeds differ by the same amount, there is no
        interval and no p-value.

    Raises:
        ValueError: If the arms have no scores, or not equally many.

    Reference:
        ``scipy.stats.ttest_rel(arm, base).confidence_interval(0.95)``.
    """
    if len(arm) != len(base) or not arm:
        raise ValueError(
            f"arm and base must have equally many scores, got {len(arm)} and {len(base)}"
        )
    values = tuple(float(a) - float(b) for a, b in zip(arm, base, strict=True))
    mean = float(np.mean(values))
    plain = Difference(values, mean, None, None, None)
    if len(values) == 1 or plain.is_constant:
        return plain
    from scipy.stats import ttest_rel

    test = ttest_rel(arm, base)
    low, high = test.confidence_interval(CONFIDENCE)
    return Difference(values, mean, float(low), float(high), float(test.pvalue))


def verdict(
    name: str,
    metric: str,
    difference: Difference,
    base: str = "base",
    *,
    greater_is_better: bool = True,
) -> str:
    """Say in one sentence what a difference shows."""
    seeds, change = len(difference.values), f"{difference.mean:+.4f}"
    if seeds == 1:
        return (
            f"Nothing can be said about {name} against {base}: one seed gives {change} {metric}, "
            "and no measure of chance; use at least two."
        )
    if difference.is_zero:
        return (
            f"No difference: {name} and {base} have the same {metric} on each of {seeds} seeds; "
            "look at the scores whether both have learned everything, or nothing."
        )
    if difference.low is None or difference.high is None:
        return (
            f"{name} differs from {base} by {change} {metric} on each of {seeds} seeds; with no "
            "spread at all there is no confidence interval."
        )
    interval = f"95 % interval {difference.low:+.4f} to {difference.high:+.4f}, {seeds} seeds"
    if difference.low <= 0 <= difference.high:
        return f"No difference shown between {name} and {base}: {change} {metric} ({interval})."
    word = "better" if (difference.mean > 0) == greater_is_better else "worse"
    return f"{name} is {word} than {base}: {change} {metric} ({interval})."
