"""The example of block self-attention, on sentences that a few steps can learn."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from examples import biblosa
from models.biblosa import BiBloSAN
from tests.examples.conftest import Call

ROWS = [
    ("a fine film", 1),
    ("a dull and tired film", 0),
    ("moving , fine and warm", 1),
    ("it is dull", 0),
]


def test_it_learns_sentences_and_says_so_in_one_line(
    tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "".join(f"{sentence}\t{label}\n" for sentence, label in ROWS * 40)
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("sentence\tlabel\n" + lines, encoding="utf-8")
    words = "--epochs 6 --batch-size 16 --block-length 2".split()
    call(biblosa, "--data-dir", tmp_path, *words)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("validation: 100.0% right, ") and line.endswith("; seed 0")


def test_words_are_known_that_come_twice() -> None:
    known = biblosa.learn_words(["a b a", "c b"])
    assert known == {"a": 1, "b": 2}
    encoded = biblosa.encode(["b c a"], [1], known)
    assert encoded.words[0].tolist() == [2, biblosa.UNKNOWN, 1]


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
