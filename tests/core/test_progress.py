"""How far work is, with a terminal and without one."""

import logging
import time
from typing import Any

import pytest

from jat_graph.core.progress import track_progress


def test_a_bar_counts_where_someone_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # to rich, stderr is a terminal
    assert list(track_progress(iter("abc"), "heads", 3)) == ["a", "b", "c"]
    shown = capsys.readouterr()
    assert "heads" in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("times", "items", "said"),
    [
        ([0.0, 0.0, 20.0, 40.0, 60.0, 80.0], "abcde", [(2, 5, 40, 60), (4, 5, 80, 20)]),
        ([0.0, 40.0, 50.0], "ab", [(1, 2, 50, 50)]),  # before the first is done, nobody knows
    ],
)
def test_a_log_has_a_line_now_and_then(
    times: list[float],
    items: str,
    said: list[tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    now: Any = iter(times)
    monkeypatch.setattr(logging.getLogger("jat_graph"), "handlers", [])  # those of a command
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    with caplog.at_level(logging.INFO, logger="jat_graph"):
        assert list(track_progress(iter(items), "heads", len(items))) == list(items)
    line = "heads: {} of {} in {} s, at this pace {} s more".format
    assert caplog.messages == [line(*numbers) for numbers in said]
    assert capsys.readouterr() == ("", "")
