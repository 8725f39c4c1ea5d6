import re
import sys
from pathlib import Path

import pytest

from examples import byte_models

BITS = r"\d+\.\d{3} bits a character, \d+ s"
LINE = (
    rf"validation: base {BITS}; jump {BITS}; "
    r"(?P<joined>\d+)% of pairs joined; seed 3\n"
)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    settings = ["--data-dir", str(folder), "--steps", "2", "--batch-size", "2", "--seed", "3"]
    monkeypatch.setattr(sys, "argv", ["byte_models", "--model", "jat_decoder", *settings, *words])
    byte_models.main()


def test_it_compares_two_models_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "input.txt").write_text("To be, or not to be: that is the question.\n" * 20)
    found = {}
    for threshold in ("0", "1e9"):
        run(monkeypatch, tmp_path, "--length", "16", "--threshold", threshold)
        line = re.fullmatch(LINE, capsys.readouterr().out)
        assert line is not None
        found[threshold] = int(line["joined"])
    assert found["0"] > 50
    assert found["1e9"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "must hold input.txt, itself or in lm/tinyshakespeare or tinyshakespeare"),
        (("--threshold", "-1"), "threshold must be"),
        (("--key-step", "0"), "key_step must be"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, tmp_path, *words)
    assert str(caught.value).startswith("byte_models: error: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_text_shorter_than_a_piece_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "input.txt").write_text("To be, or not to be")
    with pytest.raises(SystemExit, match=r"length must be 2 to .* got 128$"):
        run(monkeypatch, tmp_path)
