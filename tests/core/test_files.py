"""Files are written whole, and work says how far it is."""

import json
import logging
import os
import stat
import time
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jat_graph.core.files import parse_object, read_object, replacing, write_text
from jat_graph.core.progress import track_progress


def test_a_file_is_written_whole_by_one_beside_it_of_the_same_suffix(tmp_path):
    path = tmp_path / "settings.json"
    write_text(path, "ρ = 6\n")
    with replacing(str(path)) as temporary:
        assert (temporary.parent, temporary.suffix) == (tmp_path, ".json")
        assert path.read_text(encoding="utf-8") == "ρ = 6\n"
        temporary.write_text("ρ = 7\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == "ρ = 7\n"
    assert os.listdir(tmp_path) == ["settings.json"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "results.json"
    path.write_text("old")
    with pytest.raises(type(error)), replacing(path) as temporary:
        temporary.write_text("half of the n")
        raise error
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["results.json"]


def test_a_failed_first_write_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="must be Unicode text, got a lone surrogate at 0"):
        write_text(tmp_path / "broken.txt", "\ud800")
    with pytest.raises(FileNotFoundError) as caught:
        write_text(tmp_path / "none" / "file.txt", "text")
    assert caught.value.filename == str(tmp_path / "none" / "file.txt")
    assert os.listdir(tmp_path) == []
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_text(tmp_path / "taken", "text")
    assert os.listdir(tmp_path) == ["taken"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_permissions_are_those_of_ordinary_files(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_text(tmp_path / "file.txt", "text")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file.txt").stat().st_mode) == mode


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "settings .* must be JSON"),
        ("[" * 100_000, "settings .* must be JSON, got brackets that are nested too"),
        ("[]", "settings .* must be a JSON object, got list"),
    ],
)
def test_only_objects_are_read(tmp_path, text, words):
    path = tmp_path / "file.json"
    write_text(path, '{"a": 1}')
    assert read_object(path, "settings") == {"a": 1}
    write_text(path, text)
    with pytest.raises(ValueError, match=words) as caught:
        read_object(path, "settings")
    assert "\n" not in str(caught.value)


@given(st.text("\ud83d\udc36a\\ué🐶"))
def test_lone_surrogates_are_found_in_json(text):
    spelled = json.dumps({"a": text})
    is_lone = any("\ud800" <= letter <= "\udfff" for letter in json.loads(spelled)["a"])
    said = pytest.raises(ValueError, match="text must be Unicode text, got a lone surrogate at")
    with said if is_lone else nullcontext():
        parse_object(spelled, "text")


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
