"""The example of block self-attention, on sentences that a few steps can learn."""

import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from examples import biblosa
from models.biblosa import BiBloSAN

ROWS = [
    ("a fine film", 1),
    ("a dull and tired film", 0),
    ("moving , fine and warm", 1),
    ("it is dull", 0),
]


def write_sst2(folder: Path) -> None:
    lines = "".join(f"{sentence}\t{label}\n" for sentence, label in ROWS * 40)
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("sentence\tlabel\n" + lines, encoding="utf-8")


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["biblosa", *words])
    biblosa.main()


def test_it_learns_sentences_and_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sst2(tmp_path)
    words = ["--data-dir", str(tmp_path), "--epochs", "6", "--batch-size", "16"]
    run(monkeypatch, *words, "--block-length", "2")
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("validation: 100.0% right, ") and line.endswith("; seed 0")


def test_words_are_known_that_come_twice() -> None:
    known = biblosa.learn_words(["a b a", "c b"])
    assert known == {"a": 1, "b": 2}
    encoded = biblosa.encode(["b c a"], [1], known)
    assert encoded.words[0].tolist() == [2, biblosa.UNKNOWN, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data-dir", "nowhere"], "nowhere"),
        (["--epochs", "0"], "got 0"),
        (["--block-length", "-1"], "block_length must be at least 1, got -1"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sst2(tmp_path)
    with pytest.raises(SystemExit, match=message) as stopped:
        run(monkeypatch, "--data-dir", str(tmp_path), *words)
    assert str(stopped.value).startswith("biblosa: error: ")
    assert "\n" not in str(stopped.value)


def test_padding_changes_no_sentence() -> None:
    torch.manual_seed(0)
    model = BiBloSAN(9, classes=2, channels=8, hidden_channels=8).eval()
    words = torch.randint(9, (3, 7))
    padded = torch.cat([words, torch.zeros(3, 6, dtype=torch.int64)], dim=1)
    assert_close(model(padded, torch.arange(13).expand(3, -1) < 7), model(words))


def test_the_order_of_words_matters() -> None:
    torch.manual_seed(0)
    model = BiBloSAN(9, classes=2, channels=8, hidden_channels=8).eval()
    words = torch.arange(7)[None]
    assert not torch.allclose(model(words), model(words.flip(-1)), atol=1e-6)
