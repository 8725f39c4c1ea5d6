"""Memory rows: extra bytes as a multiple of what the layer is given."""

import mmap

import pytest

from jat_graph.lab.speed import memory, probe
from jat_graph.lab.speed.checks import CheckError
from jat_graph.lab.speed.inputs import draw_heads
from jat_graph.lab.speed.memory import MEMORY, own_bytes, run_layer, run_side
from jat_graph.lab.speed.series import Series, Settings
from jat_graph.operators import DenseOperator, ThresholdOperator
from jat_graph.training import memory as own_memory
from tests.lab.speed.test_probe import needs_peaks

LENGTH = 64
MIB = 2**20


@pytest.fixture
def series(settings: Settings) -> Series:
    return MEMORY.series(settings)[0]


def test_extra_memory_is_compared_with_queries_keys_and_scores(series: Series, monkeypatch) -> None:
    asked = []

    def fake(module: str, side: str, length: int, device: str) -> int:
        asked.append(side)
        return 10_000 + (2 * own_bytes(length, Settings(device, 1)) if side == "jump" else 0)

    monkeypatch.setattr(memory, "probe", fake)
    outcome = series.measure(LENGTH, Settings("cpu", 9))
    assert asked == ["jump", "stock"] * 3
    assert outcome.facts["multiple"] == pytest.approx(2.0)
    assert outcome.facts["extra_bytes"] == 2 * own_bytes(LENGTH, Settings("cpu", 3))
    assert outcome.facts["joined"] >= 0.6


def test_own_bytes() -> None:
    # 4 heads of 64 tokens: Q and K of 64 float32, and U = ⌈5 ln 64⌉ = 21 scores.
    assert own_bytes(64, Settings("cpu", 1)) == 4 * 64 * (64 + 64 + 21) * 4


def test_wrong_results_are_refused_before_any_process_starts(
    series: Series, settings: Settings, monkeypatch
) -> None:
    for owner in (DenseOperator, ThresholdOperator):
        monkeypatch.setattr(owner, "_matmul", lambda self, x, diagonal: x)
    monkeypatch.setattr(memory, "probe", lambda *arguments: pytest.fail("it was started"))
    with pytest.raises(CheckError, match="nothing was timed"):
        series.measure(LENGTH, settings)


def test_a_process_that_fails_is_named_in_one_line(settings: Settings) -> None:
    with pytest.raises(CheckError, match=r"^memory of jump, L=0: its process failed: \S.*$"):
        probe.probe(memory.__name__, "jump", 0, settings.device)


def test_a_system_without_peaks_is_said(
    series: Series, settings: Settings, monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr(own_memory, "PEAK_RESET", tmp_path / "missing")
    outcome = series.measure(LENGTH, settings)
    assert outcome.ratio is None
    assert outcome.note.startswith("not measured: only Linux")


def take(size: int) -> None:
    """Take bytes from the system and give them back: malloc may have some left from other tests."""
    with mmap.mmap(-1, size) as pages:
        pages[:: mmap.PAGESIZE] = bytes(size // mmap.PAGESIZE)


@needs_peaks
def test_memory_that_is_freed_again_counts(monkeypatch, settings: Settings) -> None:
    def use(side, heads, config=None) -> None:
        if heads.length > memory.WARM_UP_LENGTH:
            take(50 * MIB)

    monkeypatch.setattr(memory, "run_layer", use)
    take(200 * MIB)  # an older peak, which must not hide the new one
    assert 49 * MIB < run_side("jump", 128, settings) < 80 * MIB


@pytest.mark.parametrize("side", ["jump", "stock"])
def test_the_layer_runs_backward_too(side: str, monkeypatch, settings: Settings) -> None:
    grads = []
    leaves = memory.leaves

    def remember(heads):
        grads.append(leaves(heads))
        return grads[-1]

    monkeypatch.setattr(memory, "leaves", remember)
    run_layer(side, draw_heads(32, 4, device=settings.torch_device))
    assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in grads[0])
