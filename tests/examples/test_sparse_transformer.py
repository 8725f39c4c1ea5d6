import re
import sys
from pathlib import Path

import pytest

from examples import byte_models

LINE = (
    r"validation: \d+\.\d{3} bits a character, \d+ s; heads read (?P<share>\d+)% of all pairs, "
    r"two layers (?P<reach>do|do not) connect every token with all before it; seed 3\n"
)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    settings = ["--data-dir", str(folder), "--steps", "2", "--batch-size", "2", "--seed", "3"]
    monkeypatch.setattr(
        sys, "argv", ["byte_models", "--model", "sparse_transformer", *settings, *words]
    )
    byte_models.main()


@pytest.mark.parametrize(
    ("pattern", "share", "reach"),
    [("strided:4", 19, "do"), ("fixed:4:1", 13, "do"), ("window:2&causal", 12, "do not")],
)
def test_it_prints_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pattern: str,
    share: int,
    reach: str,
) -> None:
    (tmp_path / "input.txt").write_text("To be, or not to be: that is the question.\n" * 20)
    run(monkeypatch, tmp_path, "--length", "16", "--pattern", pattern)
    line = re.fullmatch(LINE, capsys.readouterr().out)
    assert line is not None
    assert (int(line["share"]), line["reach"]) == (share, reach)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "must hold input.txt, itself or in lm/tinyshakespeare or tinyshakespeare"),
        (("--pattern", "strided:0"), "stride of strided"),
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
