"""A point of a kernel benchmark."""

import pytest

from jat_graph.lab.speed.case import open_case
from jat_graph.lab.speed.inputs import NUM_HEADS, number_of_keys
from jat_graph.lab.speed.series import Settings


def test_a_case_has_heads_whose_figures_it_prints_once_timed(
    settings: Settings, said: pytest.LogCaptureFixture
) -> None:
    case = open_case("count", 40, settings)
    assert case.name == "count, L=40"
    assert case.few_scores().shape == (1, NUM_HEADS, 40, number_of_keys(40))
    assert case.attend().shape == (1, NUM_HEADS, 40, 64)
    assert not said.messages
    calls = []
    timing = case.time([lambda: calls.append(len(said.messages))], case.attend)
    assert set(calls) == {1}  # the figures came before the first call
    outcome = case.outcome(timing, {"keys": 3})
    assert outcome.facts == {**case.work.facts, "keys": 3}
