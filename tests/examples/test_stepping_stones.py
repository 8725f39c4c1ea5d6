"""The picture of stepping stones."""

from pathlib import Path

import pytest
import torch

from examples import stepping_stones
from examples.sentence_graph import SENTENCE
from examples.stepping_stones import HIGH, LINK, LOW, MARK, draw, look
from jat_graph.inspection import HeadView, Link, Stone, StoneReport, Token
from tests.examples.conftest import Call


def test_the_two_words_share_the_two_books_as_the_page_says(minilm_path: str) -> None:
    view = look(minilm_path, SENTENCE, layer=1, head=10, threshold=1.0)
    pair = [token for token in view.tokens if token.text in ("pencil", "computer")]
    standing = {
        (stone.token.text, stone.side): [link.token for link in stone.links]
        for stone in view.report.stones
        if {link.token for link in stone.links} >= {*pair}
    }
    assert standing == {("book", HIGH): pair}
    books = [s for s in view.report.stones if s.token.text == "book" and s.side == HIGH]
    assert [[link.token for link in stone.links] for stone in books] == [pair, pair]
    pencil, computer = (view.tokens.index(token) for token in pair)
    assert view.weights[pencil, computer].item() == pytest.approx(0.49, abs=0.005)
    assert view.weights[computer, pencil].item() == pytest.approx(0.15, abs=0.005)


def test_links_to_a_stone_of_all_marked_words_are_marked() -> None:
    a, b = tokens = Token(1, "a"), Token(2, "b")
    stones = Stone(a, HIGH, 0.5, (Link(a, 0.5), Link(b, 1.5))), Stone(b, HIGH, 0.5, (Link(b, 1.0),))
    facts = {"linked": 1.0, "num_stones": 2, "median_size": 1.5, "stones": stones}
    report = StoneReport(0, 0, 1.0, 0.5, 0.4, (), **facts)
    view = HeadView(report, tokens, *[torch.eye(2)] * 4)
    (axis,) = draw(view, ["a", "b"]).axes
    drawn = {(line.get_color(), *line.get_ydata()) for line in axis.lines}
    assert drawn == {(MARK, 0, 0), (MARK, -1, 0), (LINK, -1, -1)}
    assert all(line.get_color() == LINK for line in draw(view, []).axes[0].lines)
    assert LOW < 0 < HIGH and all(line.get_xdata()[1] > 0 for line in axis.lines)


def test_the_picture_is_written(tiny_model: str, tmp_path: Path, call: Call) -> None:
    picture = tmp_path / "stones.png"
    words = ["--model", tiny_model, "--sentence", "the book costs", "--layer", "0", "--head", "0"]
    call(stepping_stones, *words, "--output", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
