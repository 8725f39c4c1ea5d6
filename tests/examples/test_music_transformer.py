"""The chorales' example on a few bars."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch

from examples import music_transformer

CHORALE = [[60 + step % 5, 55, 52 + step % 3, 48] for step in range(10)]


def call(monkeypatch: pytest.MonkeyPatch, data_dir: Path, length: int = 16) -> None:
    words = ["--data-dir", str(data_dir), "--steps", "3", "--length", str(length)]
    words += ["--batch-size", "2"]
    monkeypatch.setattr(sys, "argv", ["music_transformer", *words])
    music_transformer.main()


def test_both_models_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = {name: [CHORALE, CHORALE[:3]] for name in ("train", "valid", "test")}
    (tmp_path / "jsb-chorales-16th.json").write_text(json.dumps(splits), encoding="utf-8")
    lines = []
    for _ in range(2):
        call(monkeypatch, tmp_path)
        lines.append(capsys.readouterr().out)
    number = r"(\d+\.\d+) a note, (\d+\.\d+) a step"
    found = re.fullmatch(rf"test nats: relative {number}, .*; absolute {number}, .*\n", lines[0])
    assert found is not None
    relative, relative_step, absolute, absolute_step = map(float, found.groups())
    assert relative_step == pytest.approx(4 * relative, abs=0.02)
    assert absolute_step == pytest.approx(4 * absolute, abs=0.02)
    assert relative != absolute
    without_seconds = [re.sub(r"\d+ s\b", "", line) for line in lines]
    assert without_seconds[0] == without_seconds[1]


def test_pieces_hold_every_note_once_as_a_target() -> None:
    tokens = [[129, *range(20)], [129, *range(50, 58)]]
    pieces = music_transformer.cut(tokens, 8)
    targets = pieces[:, 1:]
    assert targets[targets >= 0].tolist() == [*range(20), *range(50, 58)]
    assert pieces.shape == (4, 9)
    assert pieces[1].tolist() == [7, *range(8, 16)]


def test_a_likely_note_costs_little() -> None:
    class Certain(torch.nn.Module):
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return 100.0 * torch.nn.functional.one_hot(tokens + 1, 130)

    pieces = music_transformer.cut([[1, 2, 3, 4, 5]], 8)
    assert music_transformer.evaluate(Certain(), pieces) == pytest.approx(0.0, abs=1e-6)


def test_bad_input_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"error: length must be a multiple of 4, got 6$"):
        call(monkeypatch, tmp_path, length=6)
    with pytest.raises(SystemExit, match=r"^music_transformer: error: [^\n]+$"):
        call(monkeypatch, tmp_path)
