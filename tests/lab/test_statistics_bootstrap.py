"""The bootstrap against all resamples there are, and against what it must not depend on."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jat_graph.lab.measures import Scorer, scorer
from jat_graph.lab.statistics import DRAWS, Interval, interval, paired_bootstrap, paired_difference
from jat_graph.tasks import get_task

HITS = st.lists(st.integers(0, 1), min_size=20, max_size=20)


def of_hits(hits: list[int]) -> Scorer:
    """Return the scorer of a run that is right where there is a 1."""
    return scorer(get_task("rte").measure, "accuracy", hits, [1] * len(hits))


def test_against_every_resample_that_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jat_graph.lab.statistics.DRAWS", 20_000)
    arm, base = [1, 1, 0, 1], [0, 1, 0, 0]
    gaps = np.array(arm) - np.array(base)
    every = [gaps[list(places)].mean() for places in product(range(4), repeat=4)]
    draws = paired_bootstrap([of_hits(arm)], [of_hits(base)], "x")
    assert sorted(set(np.round(draws, 9))) == sorted(set(np.round(every, 9)))
    assert draws.mean() == pytest.approx(np.mean(every), abs=0.01)
    assert draws.std() == pytest.approx(np.std(every), abs=0.01)
    low, high = np.percentile(every, [2.5, 97.5])
    assert interval(draws) == Interval(pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize("scores", [[0.2, 0.5], [0.1, 0.4, 0.3], [0.0, 0.2, 0.3, 0.7, 0.8]])
def test_where_only_seeds_matter_it_is_the_paired_t_test(
    scores: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jat_graph.lab.statistics.DRAWS", 4000)
    arm, base = [_Whole(score) for score in scores], [_Whole(0.1)] * len(scores)
    truth = paired_difference(scores, [0.1] * len(scores))
    found = interval(paired_bootstrap(arm, base, "x"))
    assert truth.low is not None and truth.high is not None and found is not None
    assert (found.low, found.high) == pytest.approx((truth.low, truth.high), rel=0.05)


def test_both_spreads_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jat_graph.lab.statistics.DRAWS", 4000)
    # ten seeds, whose spread is a little more than that of the examples
    draw = np.random.default_rng(0)
    hits = draw.integers(2, size=400)
    shares = np.linspace(-0.1, 0.1, 10)
    arm = [_Shifted(of_hits(hits.tolist()), share) for share in shares]
    draws = paired_bootstrap(arm, [of_hits([0] * 400)] * 10, "x")
    of_seeds = shares.var(ddof=1) / 10 * 9 / 7  # the variance of Student's t, 9 degrees of freedom
    assert draws.var() == pytest.approx(hits.var() / 400 + of_seeds, rel=0.1)


class _Whole:
    """A run whose score no resample of examples changes."""

    examples = 10

    def __init__(self, score: float) -> None:
        self._score = score

    def scores(self, counts: np.ndarray) -> np.ndarray:
        return np.full(len(counts), self._score)


class _Shifted:
    """A run that is better than another one by the same amount on every resample."""

    def __init__(self, inner: Scorer, more: float) -> None:
        self.examples, self._inner, self._more = inner.examples, inner, more

    def scores(self, counts: np.ndarray) -> np.ndarray:
        return self._inner.scores(counts) + self._more


@settings(max_examples=10, deadline=None)
@given(st.lists(HITS, min_size=1, max_size=3))
def test_an_arm_does_not_differ_from_itself(runs: list[list[int]]) -> None:
    side = [of_hits(run) for run in runs]
    assert interval(paired_bootstrap(side, side, "x")) == Interval(0.0, 0.0)


@settings(max_examples=10, deadline=None)
@given(HITS, HITS)
def test_exchanging_arms_mirrors_the_draws(arm: list[int], base: list[int]) -> None:
    there, back = (
        paired_bootstrap([of_hits(one)], [of_hits(other)], "x")
        for one, other in ((arm, base), (base, arm))
    )
    assert np.array_equal(there, -back)


def test_the_same_name_gives_the_same_draws() -> None:
    arm, base = [of_hits([1, 0, 1, 1])], [of_hits([0, 0, 1, 1])]
    first, again, other = (paired_bootstrap(arm, base, name) for name in ("a", "a", "b"))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_other_seeds_do_the_same_to_what_the_same_models_say_of_other_examples() -> None:
    hits = np.random.default_rng(0).integers(2, size=(3, 50))
    base = [of_hits([0] * 50)] * 3
    here = paired_bootstrap([of_hits(run.tolist()) for run in hits], base, "here", "models")
    there = paired_bootstrap([of_hits(run.tolist()) for run in hits], base, "there", "models")
    apart = paired_bootstrap([of_hits(run.tolist()) for run in hits], base, "there")
    together, alone = (np.corrcoef(here, other)[0, 1] for other in (there, apart))
    assert together > 0.3 > abs(alone)


def test_what_both_arms_share_does_not_widen_the_interval() -> None:
    common = np.random.default_rng(0).integers(2, size=200)
    better = common.copy()
    better[np.flatnonzero(common == 0)[:30]] = 1
    found = interval(paired_bootstrap([of_hits(better.tolist())], [of_hits(common.tolist())], "x"))
    assert found is not None and not found.holds_zero
    assert found.high - found.low < 0.12  # two arms apart would have 0.19


def test_many_examples_are_resampled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    arm, base = [of_hits([1, 0, 1, 1])], [of_hits([0, 0, 1, 1])]
    monkeypatch.setattr("jat_graph.lab.statistics._ROOM", 40)
    draws = paired_bootstrap(arm, base, "x")
    assert draws.shape == (DRAWS,)
    assert len(set(draws)) > 1


def test_what_is_undefined_too_often_has_no_interval() -> None:
    assert interval(np.array([0.1] * 89 + [np.nan] * 11)) is None
    assert interval(np.array([0.1] * 91 + [np.nan] * 9)) == Interval(0.1, 0.1)


@pytest.mark.parametrize(("arm", "base"), [([[1]], [[1], [0]]), ([[1]], [[1, 0]]), ([], [])])
def test_arms_that_do_not_match_raise(arm: list[list[int]], base: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="arms must share their seeds and examples"):
        paired_bootstrap([of_hits(run) for run in arm], [of_hits(run) for run in base], "x")
