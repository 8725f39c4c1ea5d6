"""The picture of one head's graph."""

from pathlib import Path

import pytest
import torch

from examples import sentence_graph
from examples.sentence_graph import SENTENCE, edges_of
from jat_graph.inspection import HeadReport, HeadView, Token
from tests.examples.conftest import Call


def test_each_joined_pair_is_one_edge() -> None:
    weights = torch.tensor([[0.0, 0.5, 0.0], [0.5, 0.0, 0.25], [0.0, 0.25, 0.0]])
    tokens = tuple(Token(place, name) for place, name in enumerate("abc"))
    view = HeadView(HeadReport(0, 0, 1.0, 0.5, 0.4, ()), tokens, weights, weights, weights, weights)
    assert edges_of(view) == {(0, 1): 0.5, (1, 2): 0.25}


def test_the_head_is_calibrated_and_joins_the_two_words(minilm_path: str) -> None:
    view = sentence_graph.look(minilm_path, SENTENCE, layer=2, head=9, density=0.2)
    assert view.report.density == pytest.approx(0.2, abs=0.03)
    names = [token.text for token in view.tokens]
    pair = tuple(sorted((names.index("computer"), names.index("pencil"))))
    assert pair in edges_of(view)


@pytest.mark.slow
def test_a_picture_is_written(minilm_path: str, tmp_path: Path, call: Call) -> None:
    picture = tmp_path / "picture.png"
    words = ("--sentence", "Dogs bark.", "--layer", "0", "--head", "0", "--output", picture)
    call(sentence_graph, "--model", minilm_path, *words)
    assert picture.read_bytes().startswith(b"\x89PNG")
