"""Language models of bytes: training, a measure of every byte once, and the command."""

import argparse
import math
import re
import sys
from pathlib import Path

import pytest
import torch

from examples.byte_models import bits_per_character, draw_pieces, fit, losses, main
from jat_graph import JatConfig, PairGraph
from jat_graph.patterns import parse_pattern
from models.area_transformer import AreaTransformer
from models.jat_decoder import JatDecoder
from models.memory_compressed import MemoryCompressedModel
from models.sparse_transformer import SparseTransformer

JUMPS = JatConfig(PairGraph(threshold=0.1), heads=2, hop_weights=(0.5, 0.5))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: JatDecoder(256, JUMPS, channels=32, layers=1),
        lambda: SparseTransformer(256, parse_pattern("strided:4"), 16, channels=32, layers=1),
        lambda: AreaTransformer(256, channels=32, layers=1),
        lambda: MemoryCompressedModel(256, channels=32, layers=2, block=8),
    ],
    ids=["jumps", "sparse", "areas", "compressed"],
)
def test_training_learns(make: object) -> None:
    text = torch.tensor(list(b"abcdefgh" * 40))
    torch.manual_seed(0)
    model = make()  # type: ignore[operator]
    before = bits_per_character(model, text, 16)
    args = argparse.Namespace(length=16, steps=60, batch_size=4, learning_rate=1e-2)
    fit(model.train(), draw_pieces(text, args), args)
    assert bits_per_character(model, text, 16) < 0.2 * before


def test_every_byte_of_a_whole_piece_is_measured_once() -> None:
    text = torch.arange(30)
    model = torch.nn.Embedding(30, 30)
    torch.nn.init.zeros_(model.weight)
    assert losses(model, text[None]).shape == (29,)
    assert bits_per_character(model, text, 8) == pytest.approx(math.log2(30))


TEXT = "To be, or not to be: that is the question.\n" * 20
BITS = r"\d+\.\d{3} bits a character, \d+ s"


def run(monkeypatch: pytest.MonkeyPatch, model: str, folder: Path, *words: str) -> None:
    settings = ["--data-dir", str(folder), "--steps", "2", "--batch-size", "2", "--seed", "3"]
    monkeypatch.setattr(sys, "argv", ["byte_models", "--model", model, *settings, *words])
    main()


@pytest.mark.parametrize(
    ("model", "words", "found"),
    [
        ("jat_decoder", "--threshold 0", r"base B; jump B; [5-9]\d% of pairs joined"),
        ("jat_decoder", "--threshold 1e9", "base B; jump B; 0% of pairs joined"),
        ("sparse_transformer", "--pattern strided:4", "B; heads read 19% .* do connect .*"),
        ("sparse_transformer", "--pattern fixed:4:1", "B; heads read 13% .* do connect .*"),
        ("sparse_transformer", "--pattern window:2&causal", "B; heads read 12% .* do not .*"),
        ("area_transformer", "--max-width 2", "B, spans of up to 2"),
        ("memory_compressed", "--block 8", "B"),
    ],
)
def test_it_prints_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: str,
    words: str,
    found: str,
) -> None:
    (tmp_path / "input.txt").write_text(TEXT)
    run(monkeypatch, model, tmp_path, "--length", "16", *words.split())
    line = capsys.readouterr().out
    assert re.fullmatch(f"validation: {found.replace('B', BITS)}; seed 3\n", line), line
