"""Growth: both numbers of keys are checked, then timed in turns."""

import pytest

from jat_graph.lab.speed import products
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.growth import GROWTH
from jat_graph.lab.speed.inputs import number_of_keys
from jat_graph.lab.speed.series import Settings
from tests.lab.speed.test_products import slightly_wrong

pytestmark = pytest.mark.usefixtures("quick")


def test_the_number_of_keys_follows_the_length(settings: Settings) -> None:
    (series,) = GROWTH.series(settings)
    for length in (64, 100):
        outcome = series.measure(length, settings)
        assert outcome.facts["keys"] == number_of_keys(length)
        assert outcome.theirs is not None


def test_a_wrong_product_is_refused(settings: Settings, monkeypatch) -> None:
    monkeypatch.setattr(products, "sum_joined", slightly_wrong)
    (series,) = GROWTH.series(settings)
    with pytest.raises(CheckError, match="nothing was timed"):
        series.measure(64, settings)


def test_the_lengths_reach_from_4096_to_65536(settings: Settings) -> None:
    (series,) = GROWTH.series(settings)
    assert (series.lengths[0], series.lengths[-1]) == (4096, 65536)
    assert "ours" in GROWTH.growing
