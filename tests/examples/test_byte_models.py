"""What language models of bytes share: training, and a measure of every byte once."""

import argparse
import math

import pytest
import torch

from examples.byte_models import bits_per_character, fit, losses
from jat_graph import JatConfig, PairGraph
from jat_graph.patterns import parse_pattern
from models.jat_decoder import JatDecoder
from models.sparse_transformer import SparseTransformer

JUMPS = JatConfig(PairGraph(threshold=0.1), heads=2, hop_weights=(0.5, 0.5))


@pytest.mark.parametrize(
    "make",
    [
        lambda: JatDecoder(256, JUMPS, channels=32, layers=1),
        lambda: SparseTransformer(256, parse_pattern("strided:4"), 16, channels=32, layers=1),
    ],
    ids=["jumps", "sparse"],
)
def test_training_learns(make: object) -> None:
    text = torch.tensor(list(b"abcdefgh" * 40))
    torch.manual_seed(0)
    model = make()  # type: ignore[operator]
    before = bits_per_character(model, text, 16)
    args = argparse.Namespace(length=16, steps=60, batch_size=4, learning_rate=1e-2)
    fit(model.train(), text, args)
    assert bits_per_character(model, text, 16) < 0.2 * before


def test_every_byte_of_a_whole_piece_is_measured_once() -> None:
    text = torch.arange(30)
    model = torch.nn.Embedding(30, 30)
    torch.nn.init.zeros_(model.weight)
    assert losses(model, text[None]).shape == (1, 29)
    assert bits_per_character(model, text, 8) == pytest.approx(math.log2(30))
