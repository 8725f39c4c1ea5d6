"""The picture of stepping stones."""

from pathlib import Path

import pytest
import torch

from examples import stepping_stones
from examples.sentence_graph import SENTENCE
from examples.stepping_stones import HIGH, LINK, LOW, MARK, Standing, draw, look
from tests.examples.conftest import Call


def test_the_two_words_share_the_two_books_as_the_page_says(minilm_path: str) -> None:
    standing = look(minilm_path, SENTENCE, layer=1, head=10, threshold=1.0)
    pencil, computer = (standing.words.index(word) for word in ("pencil", "computer"))
    books = [place for place, word in enumerate(standing.words) if word == "book"]
    assert len(books) == 2
    high, low = standing.links[HIGH], standing.links[LOW]
    for book in books:
        assert high[:, book].nonzero().flatten().tolist() == [pencil, computer]
    shared = (high[pencil] * high[computer]).nonzero().flatten().tolist()
    assert shared == books and not (low[pencil] * low[computer]).any()
    assert standing.walk[pencil, computer].item() == pytest.approx(0.49, abs=0.005)
    assert standing.walk[computer, pencil].item() == pytest.approx(0.15, abs=0.005)


def test_links_to_a_stone_of_all_marked_words_are_marked() -> None:
    high = torch.tensor([[0.5, 0.0], [1.5, 1.0]])
    standing = Standing(["a", "b"], {LOW: torch.zeros(2, 2), HIGH: high}, torch.eye(2))
    (axis,) = draw(standing, ["a", "b"]).axes
    drawn = {(line.get_color(), *line.get_ydata()) for line in axis.lines}
    assert drawn == {(MARK, 0, 0), (MARK, -1, 0), (LINK, -1, -1)}
    assert all(line.get_color() == LINK for line in draw(standing, []).axes[0].lines)


def test_the_picture_is_written(tiny_model: str, tmp_path: Path, call: Call) -> None:
    picture = tmp_path / "stones.png"
    words = ["--model", tiny_model, "--sentence", "the book costs", "--layer", "0", "--head", "0"]
    call(stepping_stones, *words, "--output", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
