"""The chorales' example on a few bars."""

import json
import re
from pathlib import Path

import pytest
import torch

from examples import music_transformer
from tests.examples.conftest import Call

CHORALE = [[60 + step % 5, 55, 52 + step % 3, 48] for step in range(10)]


def test_both_models_are_measured(
    tmp_path: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = {name: [CHORALE, CHORALE[:3]] for name in ("train", "valid", "test")}
    (tmp_path / "jsb-chorales-16th.json").write_text(json.dumps(splits), encoding="utf-8")
    lines = []
    for _ in range(2):
        words = "--steps 3 --length 16 --batch-size 2".split()
        call(music_transformer, "--data-dir", tmp_path, *words)
        lines.append(re.sub(r"\d+ s\b", "", capsys.readouterr().out))
    number = r"(\d+\.\d+) a note, (\d+\.\d+) a step"
    found = re.fullmatch(rf"test nats: relative {number}, .*; absolute {number}, .*\n", lines[0])
    assert found is not None
    relative, relative_step, absolute, absolute_step = map(float, found.groups())
    assert relative_step == pytest.approx(4 * relative, abs=0.02)
    assert absolute_step == pytest.approx(4 * absolute, abs=0.02)
    assert relative != absolute and lines[0] == lines[1]


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
    losses = music_transformer.evaluate(Certain(), pieces)
    assert losses.shape == (4,) and losses.max() < 1e-6
