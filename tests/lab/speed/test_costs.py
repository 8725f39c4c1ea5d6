"""The prices behind backend="auto"."""

import json

import pytest
import torch

from jat_graph.lab.speed import costs
from jat_graph.lab.speed.costs import refit_prices
from jat_graph.operators.choice import PRICES, prices_of

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(costs.measure_prices, "__defaults__", ((32, 48), 1))


def test_every_price_of_the_model_is_measured(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"cuda": {"machine": "a GPU", "nanoseconds": {"vote": 1.0}}}))
    prices = refit_prices(CPU, path)
    assert set(prices) == set(PRICES) and min(prices.values()) > 0
    table = json.loads(path.read_text())
    assert table["cuda"] == {"machine": "a GPU", "nanoseconds": {"vote": 1.0}}
    assert table["cpu"]["nanoseconds"] == prices
    assert "threads" in table["cpu"]["machine"]


def test_the_table_of_the_package_has_the_form_that_is_written(tmp_path):
    path = tmp_path / "costs.json"
    assert set(refit_prices(CPU, path)) == set(prices_of("cpu")[0])


@pytest.mark.parametrize("content", ["{", "[1]", '{"cpu": {}}', '{"version": 1}'])
def test_another_file_is_left_alone(tmp_path, content):
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"other\.json must be"):
        refit_prices(CPU, path)
    assert path.read_text() == content
