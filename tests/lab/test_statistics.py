"""Means and intervals against scipy and against formulas written out."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from jat_graph.lab.statistics import (
    Difference,
    Interval,
    paired_difference,
    summarize,
    verdict,
)

scores = st.integers(0, 1000).map(lambda n: n / 1000)
pairs = st.lists(st.tuples(scores, scores), min_size=2, max_size=8)


def test_summary_by_hand() -> None:
    summary = summarize([0.1, 0.2, 0.6])
    assert summary.mean == pytest.approx(0.3)
    assert summary.std == pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 2))


def test_one_seed_has_no_spread() -> None:
    assert summarize([0.5]).std is None


@pytest.mark.parametrize("call", [lambda: summarize([]), lambda: paired_difference([], [])])
def test_no_scores_raise(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"must (hold|have)"):
        call()


def test_unpaired_scores_raise() -> None:
    with pytest.raises(ValueError, match="equally many scores, got 2 and 1"):
        paired_difference([0.1, 0.2], [0.1])


def test_interval_by_hand() -> None:
    arm, base = [0.52, 0.55, 0.61], [0.50, 0.51, 0.52]
    found = paired_difference(arm, base)
    gaps = np.array([0.02, 0.04, 0.09])
    half = stats.t.ppf(0.975, df=2) * gaps.std(ddof=1) / math.sqrt(3)
    assert found.mean == pytest.approx(0.05)
    assert (found.low, found.high) == pytest.approx((0.05 - half, 0.05 + half))
    truth = stats.ttest_rel(arm, base).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((truth.low, truth.high))


@given(pairs)
def test_no_warning_and_never_nan(pairs: list[tuple[float, float]]) -> None:
    arm, base = zip(*pairs, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = paired_difference(arm, base)
    numbers = [found.mean, found.low, found.high]
    assert all(number is None or math.isfinite(number) for number in numbers)
    assert (found.low is None) == found.is_constant
    if found.interval is not None:
        assert found.interval.low <= found.mean <= found.interval.high
        p_value = stats.ttest_rel(arm, base).pvalue
        assert found.interval.holds_zero == (p_value >= 0.05 - 1e-9)


@given(pairs)
def test_exchanging_arms_mirrors_the_interval(pairs: list[tuple[float, float]]) -> None:
    arm, base = zip(*pairs, strict=True)
    there, back = paired_difference(arm, base), paired_difference(base, arm)
    assert there.mean == pytest.approx(-back.mean, abs=1e-12)
    if there.low is not None and back.high is not None:
        assert there.low == pytest.approx(-back.high, abs=1e-9)


@pytest.mark.parametrize(
    ("arm", "base", "words"),
    [
        ([0.5], [0.4], "Nothing can be said about jump"),
        ([0.5, 0.6], [0.5, 0.6], "No difference: jump and base have the same accuracy"),
        ([0.75, 0.5], [0.5, 0.25], "no confidence interval"),
        ([0.5, 0.6, 0.4], [0.4, 0.7, 0.4], "No difference shown between jump and base"),
        ([0.61, 0.62, 0.64], [0.5, 0.52, 0.53], "jump is better than base"),
        ([0.5, 0.52, 0.53], [0.61, 0.62, 0.64], "jump is worse than base"),
    ],
)
def test_verdicts_say_what_the_interval_shows(
    arm: list[float], base: list[float], words: str
) -> None:
    assert words in verdict("jump", "accuracy", paired_difference(arm, base))


def test_an_interval_that_other_examples_do_not_have_is_said() -> None:
    draws = np.full(10, np.nan)
    sentence = verdict("jump", "matthews", Difference({0: 0.1, 1: 0.3}, None, draws))
    assert sentence == (
        "jump differs from base by +20.0 matthews over 2 seeds; where matthews is undefined on "
        "other examples there is no confidence interval."
    )


def test_perplexity_is_no_share() -> None:
    found = Difference({0: -1.0, 1: -1.5}, Interval(-2.0, -0.5))
    assert verdict("jump", "perplexity on test", found, greater_is_better=False) == (
        "jump is better than base: -1.250 perplexity on test "
        "(95 % interval -2.000 to -0.500, 2 seeds)."
    )


def test_constant_shift_is_told_from_rounding() -> None:
    shifted = paired_difference([0.1 + 0.2, 0.7], [0.2, 0.6])  # both 0.1, to rounding
    assert shifted.is_constant and not shifted.is_zero and shifted.low is None
    assert isinstance(shifted, Difference)
