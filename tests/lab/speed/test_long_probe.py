"""The memory of a step is that above weights, gradients and optimizer."""

import pytest

from jat_graph.lab.speed import long_probe
from jat_graph.lab.speed.long_models import STOCK
from jat_graph.lab.speed.series import Settings
from tests.lab.speed.test_probe import needs_peaks

pytestmark = pytest.mark.usefixtures("quick")


@needs_peaks
def test_main_prints_the_bytes(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["-c", STOCK, "64", "cpu"])
    long_probe.main()
    assert int(capsys.readouterr().out) >= 0


def test_weights_gradients_and_optimizer_are_there_before(settings: Settings, monkeypatch) -> None:
    there = []

    def look(step, device) -> int:
        optimizer = step.__self__.optimizer
        weights = list(step.__self__.model.parameters())
        used = [weight for weight in weights if weight.grad is not None]
        there.append(used and all("exp_avg" in optimizer.state[weight] for weight in used))
        return 7

    monkeypatch.setattr(long_probe, "peak_of", look)
    assert long_probe.measure(STOCK, 64, settings) == 7
    assert there == [True]
