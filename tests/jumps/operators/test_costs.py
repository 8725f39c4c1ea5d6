import dataclasses
import json
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.jumps.operators.backends import Workload, predict, prices_of

PRICES = ("vote", "entry", "multiply", "rank", "row", "incidence", "search", "link")

workloads = st.builds(
    Workload,
    graphs=st.integers(1, 64),
    length=st.integers(1, 5000),
    num_keys=st.integers(1, 300),
    width=st.integers(1, 512),
    products=st.integers(1, 6),
    causal=st.booleans(),
)


@given(work=workloads, field=st.sampled_from(("graphs", "length", "num_keys", "width", "products")))
@pytest.mark.parametrize("backend", ["dense", "threshold"])
def test_more_work_never_costs_less(backend, work, field):
    more = dataclasses.replace(work, **{field: getattr(work, field) + 1})
    prices, _ = prices_of("cpu")
    assert predict(backend, more, prices) >= predict(backend, work, prices) > 0


def test_the_table_in_the_package_is_whole():
    table = json.loads(files("jat_graph.jumps.operators").joinpath("costs.json").read_text())
    assert "cpu" in table
    for entry in table.values():
        assert set(entry) == {"machine", "nanoseconds"}
        assert set(entry["nanoseconds"]) == set(PRICES)
        assert all(price > 0 for price in entry["nanoseconds"].values())


def test_a_device_without_measurements_says_so():
    prices, where = prices_of("abacus")
    assert prices == prices_of("cpu")[0]
    assert "no measurement for abacus" in where
