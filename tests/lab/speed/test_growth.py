"""The product rows: right results are timed, wrong ones are refused before."""

import sys

import pytest
import torch
from torch.testing import assert_close

from jat_graph.kernels import count_votes, sum_joined
from jat_graph.lab.speed import growth
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.growth import (
    GROWTH,
    PRODUCT,
    product_series,
    sum_by_csr,
    sum_by_scatter,
    sum_by_torch_sparse,
)
from jat_graph.lab.speed.inputs import number_of_keys
from jat_graph.lab.speed.series import Series, Settings
from jat_graph.voting.rule import VoteRule
from tests.support import needs_torch_sparse

SERIES = product_series()
PARAMS = [
    pytest.param(one, id=one.against, marks=[needs_torch_sparse] * ("torch_sparse" in one.against))
    for one in SERIES
]
LENGTH = 48


def slightly_wrong(x, ranking):
    """Sum, and get the first feature of every token wrong by a thousandth."""
    total = sum_joined(x, ranking).clone()
    total[..., 0] *= 1.001
    return total


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("series", PARAMS)
def test_ranking_and_product_are_told_apart(
    series: Series, settings: Settings, said: pytest.LogCaptureFixture
) -> None:
    outcome = series.measure(LENGTH, settings)
    assert outcome.ours is not None
    parts = outcome.facts["rank_seconds"] + outcome.facts["product_seconds"]
    assert outcome.ours.median == pytest.approx(parts)  # of one sample
    assert outcome.facts["joined"] >= 0.6
    assert ("edges" in outcome.facts) == ("ready" in series.against)
    assert f"{PRODUCT}, L={LENGTH}: results agree" in said.text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("series", PARAMS)
def test_a_wrong_product_is_refused_and_nothing_is_timed(
    series: Series, settings: Settings, said: pytest.LogCaptureFixture, monkeypatch
) -> None:
    monkeypatch.setattr(growth, "sum_joined", slightly_wrong)
    with pytest.raises(CheckError, match=f"^{PRODUCT}, L={LENGTH}: the result check failed, error"):
        series.measure(LENGTH, settings)
    assert not said.messages


@pytest.mark.usefixtures("quick")
def test_a_missing_package_is_named(settings: Settings, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_sparse", None)
    (series,) = (one for one in SERIES if "torch_sparse" in one.against)
    outcome = series.measure(LENGTH, settings)
    assert outcome.ratio is None
    assert outcome.note.startswith("not measured: ")
    assert "torch_sparse" in outcome.note


@pytest.mark.usefixtures("quick")
def test_the_number_of_keys_follows_the_length(settings: Settings) -> None:
    (series,) = GROWTH.series(settings)
    for length in (64, 100):
        outcome = series.measure(length, settings)
        assert outcome.facts["keys"] == number_of_keys(length)
        assert outcome.theirs is not None


@pytest.mark.usefixtures("quick")
def test_a_wrong_product_of_a_length_is_refused(settings: Settings, monkeypatch) -> None:
    monkeypatch.setattr(growth, "sum_joined", slightly_wrong)
    (series,) = GROWTH.series(settings)
    with pytest.raises(CheckError, match="nothing was timed"):
        series.measure(64, settings)


def test_the_lengths_reach_from_4096_to_65536(settings: Settings) -> None:
    (series,) = GROWTH.series(settings)
    assert (series.lengths[0], series.lengths[-1]) == (4096, 65536)
    assert "ours" in GROWTH.growing


@pytest.mark.parametrize(
    "multiply",
    [sum_by_csr, sum_by_scatter, pytest.param(sum_by_torch_sparse, marks=needs_torch_sparse)],
)
def test_explicit_products_are_products(multiply) -> None:
    generator = torch.Generator().manual_seed(1)
    scores = 2 * torch.randn(1, 3, 17, 5, generator=generator)
    counts = count_votes(*VoteRule(torch.ones(1, 1)).settle(scores))
    assert 0 < int(counts.count_nonzero()) < counts.numel()
    x = torch.randn(1, 3, 17, 4, generator=generator)
    run = multiply(counts, x)
    assert_close(run(), counts @ x)
    assert_close(run(), counts @ x)  # and again: nothing is used up
