"""The product rows: right results are timed, wrong ones are refused before."""

import sys

import pytest

from jat_graph.kernels import sum_joined
from jat_graph.lab.speed import products
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.products import PRODUCT, product_series
from jat_graph.lab.speed.series import Series, Settings

SERIES = product_series()
LENGTH = 48


def slightly_wrong(x, ranking):
    """Sum, and get the first feature of every token wrong by a thousandth."""
    total = sum_joined(x, ranking).clone()
    total[..., 0] *= 1.001
    return total


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("series", SERIES, ids=lambda series: series.against)
def test_ranking_and_product_are_told_apart(
    series: Series, settings: Settings, said: pytest.LogCaptureFixture
) -> None:
    if "torch_sparse" in series.against:
        pytest.importorskip("torch_sparse")
    outcome = series.measure(LENGTH, settings)
    assert outcome.ours is not None
    parts = outcome.facts["rank_seconds"] + outcome.facts["product_seconds"]
    assert outcome.ours.median == pytest.approx(parts)  # of one sample
    assert outcome.facts["joined"] >= 0.6
    assert ("edges" in outcome.facts) == ("ready" in series.against)
    assert f"{PRODUCT}, L={LENGTH}: results agree" in said.text


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("series", SERIES, ids=lambda series: series.against)
def test_a_wrong_product_is_refused_and_nothing_is_timed(
    series: Series, settings: Settings, said: pytest.LogCaptureFixture, monkeypatch
) -> None:
    if "torch_sparse" in series.against:
        pytest.importorskip("torch_sparse")
    monkeypatch.setattr(products, "sum_joined", slightly_wrong)
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
