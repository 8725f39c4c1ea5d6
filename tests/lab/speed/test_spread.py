"""Medians, quartiles and slopes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.lab.speed.spread import Spread, slope

numbers = st.floats(1e-6, 1e6)


@given(st.lists(numbers, min_size=1, max_size=30))
def test_quartiles_lie_around_the_median_and_inside_the_values(values: list[float]) -> None:
    spread = Spread.of(values)
    assert min(values) <= spread.low <= spread.median <= spread.high <= max(values)
    assert spread.samples == len(values)
    below = sum(value < spread.median for value in values)
    above = sum(value > spread.median for value in values)
    assert max(below, above) <= len(values) / 2


@given(st.lists(numbers, min_size=1), st.randoms())
def test_the_order_of_measuring_does_not_matter(values: list[float], random) -> None:
    shuffled = random.sample(values, len(values))
    assert Spread.of(shuffled) == Spread.of(values)


def test_one_bad_sample_moves_no_median() -> None:
    assert Spread.of([1.0, 2.0, 1000.0]) == Spread(2.0, 1.5, 501.0, 3)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_what_cannot_be_summarised_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="values must be finite numbers, at least one"):
        Spread.of(values)


@given(st.floats(-3, 3), st.floats(0.1, 10), st.sets(st.integers(1, 10**6), min_size=2, max_size=8))
def test_the_slope_of_a_power_is_its_exponent(
    exponent: float, factor: float, lengths: set[int]
) -> None:
    values = [factor * length**exponent for length in lengths]
    assert slope(list(lengths), values) == pytest.approx(exponent, abs=1e-6)


@pytest.mark.parametrize(
    ("lengths", "values"), [([4.0], [1.0]), ([4.0, 4.0], [1.0, 2.0]), ([2.0, 4.0], [1.0, -1.0])]
)
def test_where_there_is_no_slope(lengths: list[float], values: list[float]) -> None:
    assert slope(lengths, values) is None
