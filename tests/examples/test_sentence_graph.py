"""The picture of one head's graph."""

import sys
from pathlib import Path

import pytest
import torch

from examples.sentence_graph import Edge, edges_of, look, main
from jat_graph.inspection import HeadReport, HeadView, Token

SENTENCE = "Book costs more than pencil. Book costs less than computer."


def test_each_joined_pair_is_one_edge() -> None:
    weights = torch.tensor([[0.0, 0.5, 0.0], [0.5, 0.0, 0.25], [0.0, 0.25, 0.0]])
    tokens = tuple(Token(place, name) for place, name in enumerate("abc"))
    view = HeadView(HeadReport(0, 0, 1.0, 0.5, 0.4, ()), tokens, weights, weights, weights, weights)
    assert edges_of(view) == [Edge((0, 1), 0.5), Edge((1, 2), 0.25)]


def test_the_head_is_calibrated_and_joins_the_two_words(minilm_path: str) -> None:
    view = look(minilm_path, SENTENCE, layer=2, head=9, density=0.2)
    assert view.report.density == pytest.approx(0.2, abs=0.03)
    names = [token.text for token in view.tokens]
    pair = tuple(sorted((names.index("computer"), names.index("pencil"))))
    assert pair in [edge.ends for edge in edges_of(view)]


def test_the_picture_is_written(
    minilm_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "graph.png"
    words = ["--model", minilm_path, "--sentence", "Dogs bark.", "--layer", "0", "--head", "0"]
    monkeypatch.setattr(sys, "argv", ["sentence_graph", *words, "--output", str(picture)])
    main()
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "nowhere"], "load the files"),
        (["--head", "99"], "head 99 must be a jump head"),
        (["--output", "graph.jpg"], "ending in .png"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    message: str,
    minilm_path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = ["--model", minilm_path, "--layer", "0", "--head", "0", "--sentence", "Dogs bark."]
    given += ["--output", str(tmp_path / "graph.png"), *words]
    monkeypatch.setattr(sys, "argv", ["sentence_graph", *given])
    with pytest.raises(SystemExit, match=f"^sentence_graph: error: .*{message}") as caught:
        main()
    assert "\n" not in str(caught.value)
