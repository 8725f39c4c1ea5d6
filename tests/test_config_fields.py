import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jat_graph import JatConfig
from jat_graph.checks.numbers import check_indices
from jat_graph.config_fields import check_hops, check_threshold, to_plain

FIELDS = [field.name for field in dataclasses.fields(JatConfig)]

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(("even:2", "inf", "all", "dense")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("name", [*FIELDS, "version"])
@settings(max_examples=40)
@given(value=junk)
def test_anything_is_a_config_or_a_value_error_that_names_the_field(name, value):
    try:
        config = JatConfig.from_dict({name: value})
    except ValueError as error:
        assert name in str(error)
        assert "\n" not in str(error)
    else:
        assert JatConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_infinities_survive_json():
    table = check_threshold([["inf", 1], [2.5, math.inf]])
    assert table == ((math.inf, 1.0), (2.5, math.inf))
    assert to_plain(table) == [["inf", 1.0], [2.5, "inf"]]
    assert check_threshold(json.loads(json.dumps(to_plain(table)))) == table


def test_mapped_hops_survive_json():
    mapping = {(2, 0): (0.0, 1.0), (1,): (0.5, 0.5)}
    checked = check_hops(mapping)
    assert checked == {(0, 2): (0.0, 1.0), (1,): (0.5, 0.5)}
    assert check_hops([[[0, 2], [0.0, 1.0]], [[1], [0.5, 0.5]]]) == checked


def test_indices_come_sorted():
    assert check_indices("layers", [3, 0, 2]) == (0, 2, 3)
