"""The peak of a process counts what was there for a moment only."""

import pytest
import torch

from jat_graph.lab.speed import probe
from jat_graph.lab.speed.inputs import random_heads
from jat_graph.lab.speed.probe import PEAK_RESET, measure
from jat_graph.lab.speed.series import Settings

needs_peaks = pytest.mark.skipif(not PEAK_RESET.exists(), reason="only Linux resets peaks")
MIB = 2**20


@needs_peaks
def test_memory_that_is_freed_again_counts(monkeypatch, settings: Settings) -> None:
    def use(side, heads, config=None) -> None:
        if heads.length > probe.WARM_UP_LENGTH:
            torch.ones(50 * MIB // 4)

    monkeypatch.setattr(probe, "run_layer", use)
    torch.ones(200 * MIB // 4)  # an older peak, which must not hide the new one
    assert 49 * MIB < measure("jump", 128, settings) < 80 * MIB


@pytest.mark.parametrize("side", ["jump", "stock"])
def test_the_layer_runs_backward_too(side: str, monkeypatch, settings: Settings) -> None:
    grads = []
    leaves = probe.leaves

    def remember(heads):
        grads.append(leaves(heads))
        return grads[-1]

    monkeypatch.setattr(probe, "leaves", remember)
    probe.run_layer(side, random_heads(32, 4, device=settings.torch_device))
    assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in grads[0])


@needs_peaks
def test_main_prints_the_bytes(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["-c", "stock", "64", "cpu"])
    probe.main()
    assert int(capsys.readouterr().out) >= 0


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="device must be 'cpu' or 'cuda'"):
        Settings("gpu", 1)
