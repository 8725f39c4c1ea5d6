"""The example of acceptable sentences, on some that a word tells apart."""

import sys
from pathlib import Path

import pytest

from examples import attention_sentences
from examples.attention_relations import READERS

ROWS = [("Dogs bark.", 1), ("Dogs the bark.", 0), ("He wrote a book.", 1), ("He the wrote.", 0)]


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *words: str) -> None:
    options = ["--data-dir", str(folder), "--graphs", str(folder / "graphs"), "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", ["attention_sentences", *options, *words])
    attention_sentences.main()


def write_cola(folder: Path) -> None:
    lines = "".join(f"gj04\t{label}\t\t{sentence}\n" for sentence, label in ROWS * 8)
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text(lines, encoding="utf-8")


def test_all_readers_learn_and_say_how_well(
    minilm_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_cola(tmp_path)
    run(monkeypatch, tmp_path, "--model", minilm_path, "--epochs", "40")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(READERS)
    assert all(": 1.000 (1.000 to 1.000, 1 seeds), " in line for line in lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "0"], "epochs must be at least 1, got 0"),
        (["--learning-rate", "0"], "learning_rate must be above 0, got 0.0"),
        (["--layer", "9"], "layer must be below 7, got 9"),
        (["--data-dir", "nowhere"], "data folder nowhere does not exist or is not a folder"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    message: str,
    minilm_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_cola(tmp_path)
    with pytest.raises(SystemExit, match=f"^attention_sentences: error: {message}$"):
        run(monkeypatch, tmp_path, "--model", minilm_path, *words)
