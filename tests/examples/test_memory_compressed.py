"""Tiny Shakespeare's example on a tiny text."""

import re
import sys
from pathlib import Path

import pytest

from examples import byte_models


def call(monkeypatch: pytest.MonkeyPatch, data_dir: Path, length: int, steps: int) -> None:
    words = ["--data-dir", str(data_dir), "--length", str(length), "--steps", str(steps)]
    monkeypatch.setattr(
        sys, "argv", ["byte_models", "--model", "memory_compressed", *words, "--batch-size", "4"]
    )
    byte_models.main()


def test_it_learns_an_alternation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "input.txt").write_text("ab" * 500, encoding="utf-8")
    bits = []
    for steps in (1, 30):
        call(monkeypatch, tmp_path, 16, steps)
        line = capsys.readouterr().out
        found = re.fullmatch(r"validation: (\d+\.\d+) bits a character, .*; seed 0\n", line)
        assert found is not None
        bits.append(float(found[1]))
    assert bits[1] < 1.0 < bits[0]


def test_bad_input_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"^byte_models: error: [^\n]+$"):
        call(monkeypatch, tmp_path, 16, 1)
    (tmp_path / "input.txt").write_text("ab" * 50, encoding="utf-8")
    with pytest.raises(SystemExit, match="length must be 2 to 9, the bytes of a split, got 16"):
        call(monkeypatch, tmp_path, 16, 1)
