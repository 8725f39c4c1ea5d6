"""A process prints the bytes that a side took."""

import pytest

from jat_graph.lab.speed import memory, probe
from jat_graph.lab.speed.series import Settings
from jat_graph.training.memory import missing_peaks

needs_peaks = pytest.mark.skipif(missing_peaks("cpu") != "", reason="only Linux resets peaks")


@needs_peaks
def test_main_prints_the_bytes(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["probe", memory.__name__, "stock", "64", "cpu"])
    probe.main()
    assert int(capsys.readouterr().out) >= 0


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="device must be 'cpu' or 'cuda'"):
        Settings("gpu", 1)
