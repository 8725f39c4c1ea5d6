"""Intervals over sentences."""

import numpy as np
import pytest
from scipy.stats import bootstrap

from jat_graph.probes.intervals import resampled, resampled_ratio


def test_the_interval_is_that_of_scipy() -> None:
    draw = np.random.default_rng(0)
    totals = draw.integers(1, 30, 200)
    hits = draw.binomial(totals, 0.3)
    ratio, low, high = resampled_ratio(hits, totals)
    whole = bootstrap(
        (hits, totals),
        lambda above, below, axis: above.sum(axis) / below.sum(axis),
        paired=True,
        method="percentile",
        n_resamples=9999,
        rng=draw,
    ).confidence_interval
    assert ratio == hits.sum() / totals.sum()
    assert (low, high) == pytest.approx((whole.low, whole.high), abs=0.004)


def test_sentences_are_drawn_whole() -> None:
    """Words of one sentence that all say the same are one piece of evidence, not many."""
    draw = np.random.default_rng(0)
    alike = draw.integers(0, 2, 50) * 20
    ratio, low, high = resampled_ratio(alike, np.full(50, 20))
    spread = (ratio * (1 - ratio) / 50) ** 0.5  # of fifty draws, not of a thousand
    assert high - low == pytest.approx(2 * 1.96 * spread, rel=0.15)


def test_columns_are_their_own() -> None:
    hits, totals = np.array([[1, 0, 3], [2, 0, 0]]), np.array([[2, 0, 3], [2, 0, 1]])
    ratio, low, high = resampled_ratio(hits, totals)
    assert ratio[[0, 2]].tolist() == [0.75, 0.75]
    assert np.isnan([ratio[1], low[1], high[1]]).all()
    assert (low[0], high[0]) == (0.5, 1.0)


def test_any_statistic_of_sums_has_its_interval() -> None:
    draw = np.random.default_rng(0)
    x = draw.normal(size=300)
    y = 2 * x + draw.normal(size=300)
    rows = np.stack([x * y, x * x], axis=-1)
    slope, low, high = resampled(rows, lambda sums: sums[:, 0] / sums[:, 1])
    assert slope == pytest.approx(np.linalg.lstsq(x[:, None], y)[0][0])
    assert (high - low) / 2 == pytest.approx(1.96 / 300**0.5, rel=0.15)  # its standard error


def test_drawings_without_the_thing_are_passed_over_if_they_are_few() -> None:
    """Of n sentences m have the thing: a drawing has none of them with (1 − m/n)ⁿ, about e⁻ᵐ."""
    totals = np.zeros((60, 2))
    totals[:5, 0] = totals[:1, 1] = 2  # 0.5 % and 37 % of the drawings have nothing
    ratio, low, high = resampled_ratio(totals / 2, totals)
    assert ratio.tolist() == [0.5, 0.5]
    assert (low[0], high[0]) == (0.5, 0.5)
    assert np.isnan([low[1], high[1]]).all()
