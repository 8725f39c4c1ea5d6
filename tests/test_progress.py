"""How far work is, with a terminal and without one."""

import logging

import pytest

from jat_graph import progress
from jat_graph.core.progress import track_progress


@pytest.fixture(autouse=True)
def no_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what a command of an earlier test shows messages by."""
    monkeypatch.setattr(logging.getLogger("jat_graph"), "handlers", [])


def test_a_bar_counts_where_someone_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # to rich, stderr is a terminal
    assert list(track_progress(iter("abc"), "heads", 3)) == ["a", "b", "c"]
    shown = capsys.readouterr()
    assert "heads" in shown.err
    assert shown.out == ""


def test_a_log_has_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = iter([0.0, 0.0, 20.0, 40.0, 60.0, 80.0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    with caplog.at_level(logging.INFO, logger="jat_graph"):
        assert list(track_progress(iter("abcde"), "heads", 5)) == list("abcde")
    said = "heads: {} of 5 in {} s, at this pace {} s more".format
    assert caplog.messages == [said(2, 40, 60), said(4, 80, 20)]
    assert capsys.readouterr() == ("", "")


def test_nobody_knows_how_long_it_takes_before_the_first_is_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = iter([0.0, 40.0, 50.0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: False)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    with caplog.at_level(logging.INFO, logger="jat_graph"):
        assert list(track_progress(iter("ab"), "heads", 2)) == ["a", "b"]
    assert caplog.messages == ["heads: 1 of 2 in 50 s, at this pace 50 s more"]
