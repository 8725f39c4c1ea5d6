"""The example of area attention, on a text that a few steps can learn."""

import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from examples import area_transformer
from models.area_transformer import AreaTransformer


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["area_transformer", *words])
    area_transformer.main()


def test_it_learns_a_text_and_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "input.txt").write_text("to be or not to be\n" * 60, encoding="utf-8")
    words = ["--data-dir", str(tmp_path), "--length", "24", "--steps", "60", "--batch-size", "8"]
    run(monkeypatch, *words)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("validation: ") and line.endswith("; seed 0")
    assert float(line.split()[1]) < 1.5  # the bits of a letter that nothing is known of are 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--length", "5000"], "length must be 2 to .*, got 5000"),
        (["--length", "0"], "length must be 2 to .*, got 0"),
        (["--length", "24", "--max-width", "0"], "max_width.* must be at least 1"),
        (["--data-dir", "nowhere"], "nowhere"),
        (["--length", "24", "--steps", "0"], "got 0"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "input.txt").write_text("to be or not to be\n" * 60, encoding="utf-8")
    with pytest.raises(SystemExit, match=message) as stopped:
        run(monkeypatch, "--data-dir", str(tmp_path), *words)
    assert str(stopped.value).startswith("area_transformer: error: ")
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize("max_width", [1, 3])
def test_the_model_reads_nothing_later(max_width: int) -> None:
    torch.manual_seed(0)
    model = AreaTransformer(20, max_width, channels=16, heads=2, layers=2).eval()
    tokens = torch.randint(20, (2, 9))
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 20
    first, second = model(tokens), model(changed)
    assert torch.equal(first[:, :5], second[:, :5])
    assert not torch.allclose(first[:, 5:], second[:, 5:])
    padded = torch.cat([tokens, torch.zeros(2, 4, dtype=torch.int64)], dim=1)
    mask = torch.arange(13).expand(2, -1) < 9
    assert_close(model(padded, mask)[:, :9], first)
