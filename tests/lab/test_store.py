"""Files of results, and folders that one process has."""

from pathlib import Path

import pytest

from jat_graph.lab.store import check_same, fingerprint, locked, read_lines, write_lines


def test_a_fingerprint_depends_on_values_and_not_on_the_order_of_keys() -> None:
    one = fingerprint("glue", {"a": 1, "b": [2.5]}, None)
    assert one == fingerprint("glue", {"b": [2.5], "a": 1}, None)
    assert one != fingerprint("glue", {"a": 1, "b": [2.0]}, None)
    assert len(one) == 12


def test_the_first_setting_that_differs_is_named() -> None:
    check_same({"a": {"b": 1}}, {"a": {"b": 1}}, "here")
    with pytest.raises(ValueError, match=r"^here holds results with a\.b=1, not 2: name another"):
        check_same({"a": {"b": 1}, "c": 3}, {"a": {"b": 2}, "c": 4}, "here")


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = [{"text": "one\u2028line"}, {"number": 0.1}]
    write_lines(path, lines)
    assert [line for _, line in read_lines(path, "here")] == lines
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_lines(path, [{"number": float("nan")}])
    assert [place for place, _ in read_lines(path, "here")] == ["here, line 1", "here, line 2"]


def test_a_folder_is_locked_for_others(tmp_path: Path) -> None:
    with locked(tmp_path / "cell", wait=False) as first:
        with locked(tmp_path / "cell", wait=False) as second:
            assert first and not second
        with locked(tmp_path / "other", wait=False) as other:
            assert other
    with locked(tmp_path / "cell", wait=True) as again:
        assert again
