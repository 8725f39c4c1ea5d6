"""Rows of stones: what is timed is right, and a wrong walk is refused."""

import pytest
import torch
from torch.testing import assert_close

from jat_graph.lab.speed import model, stones
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.inputs import draw_heads
from jat_graph.lab.speed.probe import probe
from jat_graph.lab.speed.series import Series, Settings
from jat_graph.lab.speed.stones import MEMORY, STONES, check_walk, stone_config
from jat_graph.operators import StoneOperator
from tests.lab.speed.test_probe import needs_peaks
from tests.oracles import causal_stone_propagation, stone_propagation

pytestmark = pytest.mark.usefixtures("quick")
CPU = Settings("cpu", 1)
LENGTH = 96


@pytest.mark.parametrize("series", STONES.series(CPU), ids=lambda series: series.what)
def test_each_row_is_measured(series: Series, settings: Settings, monkeypatch) -> None:
    monkeypatch.setattr(stones, "probe", lambda module, side, length, device: 1000 * length)
    tiny = model.SHAPE | {"num_attention_heads": 12, "hidden_size": 96, "num_hidden_layers": 12}
    monkeypatch.setattr(model, "SHAPE", tiny)
    outcome = series.measure(LENGTH, settings)
    assert outcome.ratio is not None
    assert outcome.ratio.median > 0
    if series.what == MEMORY:
        own = 3 * 4 * 64 * 4  # of a token, in bytes
        assert outcome.ratio.median == pytest.approx(1000 / own)


@pytest.mark.parametrize("causal", [False, True])
def test_a_wrong_walk_is_refused(causal: bool, monkeypatch) -> None:
    heads, config = draw_heads(LENGTH, 2, device=CPU.torch_device), stone_config(LENGTH)
    assert 0.05 < check_walk("walk", heads, config, causal)["linked"] < 0.5
    right = StoneOperator._matmul

    def wrong(self, x, diagonal):
        return right(self, x, diagonal) * 1.001

    monkeypatch.setattr(StoneOperator, "_matmul", wrong)
    with pytest.raises(CheckError, match=r"^walk, P x: the result check failed"):
        check_walk("walk", heads, config, causal)


@pytest.mark.parametrize("causal", [False, True])
def test_rows_by_the_definition_are_the_oracles(causal: bool) -> None:
    links = torch.rand(1, 2, 20, 5).double().sub(0.6).relu()
    rows = torch.tensor([3, 0, 19])
    truth = (causal_stone_propagation if causal else stone_propagation)(links, 0.1)
    assert_close(stones._rows_of_walk(links, rows, 0.1, causal), truth[:, :, rows])


@needs_peaks
def test_the_peak_is_that_of_all_tokens() -> None:
    assert probe(stones.__name__, MEMORY, 4096, CPU.device) > 3 * 4 * 4096 * 64 * 4
