"""One jump head against an ordinary one: checked by definition, forward and backward."""

import pytest
import torch

from jat_graph.config import JatConfig, PairGraph
from jat_graph.lab.speed import heads
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.heads import HEADS, backward, check_head, leaves
from jat_graph.lab.speed.inputs import draw_heads
from jat_graph.lab.speed.series import Series, Settings
from jat_graph.operators import DenseOperator, ThresholdOperator

pytestmark = pytest.mark.usefixtures("quick")

CPU = Settings("cpu", 1)
LENGTH = 48


@pytest.mark.parametrize("series", HEADS.series(CPU), ids=lambda series: series.what)
def test_a_head_is_measured_after_its_figures_are_printed(
    series: Series, settings: Settings, said: pytest.LogCaptureFixture
) -> None:
    outcome = series.measure(LENGTH, settings)
    assert outcome.ratio is not None
    assert outcome.facts["joined"] >= 0.6
    assert outcome.facts["taking_part"] >= 0.5
    assert f"L={LENGTH}: results agree; " in said.text


def test_lengths_are_those_of_the_claim() -> None:
    for series in HEADS.series(CPU)[1:3]:
        assert series.lengths == tuple(2**exponent for exponent in range(7, 17))
    assert HEADS.patience is not None  # or nobody would see the end of it


@pytest.mark.parametrize("backend", ["dense", "threshold"])
def test_a_wrong_operator_is_refused(backend: str, monkeypatch) -> None:
    owner = DenseOperator if backend == "dense" else ThresholdOperator
    config = JatConfig(PairGraph(key_selection="strided", backend=backend), heads=2)
    inputs = draw_heads(LENGTH, 2, device=CPU.torch_device)
    check_head("heads", inputs, config)
    right = owner._matmul

    def wrong(self, x, diagonal):
        return right(self, x, diagonal) * 1.001

    monkeypatch.setattr(owner, "_matmul", wrong)
    with pytest.raises(CheckError, match=r"^heads, A x: the result check failed"):
        check_head("heads", inputs, config)


def test_a_wrong_gradient_is_refused(monkeypatch) -> None:
    inputs = draw_heads(LENGTH, 1, device=CPU.torch_device)
    right = ThresholdOperator._matmul

    def wrong(self, x, diagonal):
        return right(self, x, diagonal) + 0.01 * (x - x.detach())

    monkeypatch.setattr(ThresholdOperator, "_matmul", wrong)
    config = JatConfig(PairGraph(key_selection="strided", backend="threshold"), heads=1)
    with pytest.raises(CheckError, match=r"^heads, gradient of A x: the result check failed"):
        check_head("heads", inputs, config)


def test_wrong_attention_is_refused(monkeypatch) -> None:
    right = heads.jump_attention
    monkeypatch.setattr(heads, "jump_attention", lambda *a, **k: right(*a, **k) * 1.001)
    inputs = draw_heads(LENGTH, 1, device=CPU.torch_device)
    with pytest.raises(CheckError, match=r"^heads: the result check failed"):
        check_head("heads", inputs, JatConfig(PairGraph(key_selection="significance"), heads=1))


def test_every_call_starts_from_fresh_gradients() -> None:
    inputs = draw_heads(LENGTH, 1, device=CPU.torch_device)
    first = leaves(inputs)
    backward(first[0] * first[1])
    assert torch.equal(first[0].grad, inputs.key)
    assert all(leaf.grad is None for leaf in leaves(inputs))
    assert inputs.query.grad is None
