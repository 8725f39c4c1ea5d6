"""Pictures for a paper: widths of a page and of a column, letters of 8 points, text as text."""

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from jat_graph.viz import (
    draw_descent,
    draw_fidelity,
    draw_graphs,
    draw_head,
    draw_patterns,
    paper_style,
    save_figure,
)
from tests.viz import test_descents, test_graphs, test_heads
from tests.viz.support import draw_inside

PICTURES = {
    "head": lambda: draw_head(test_heads.made_up_view(22)),
    "few tokens": lambda: draw_head(test_heads.made_up_view(6)),
    "stones": lambda: draw_head(test_heads.stones_view(22, stones=30)),
    "descent": lambda: draw_descent(*test_descents.made_up(200)),
    "heads": lambda: draw_graphs(
        test_graphs.made_up_graphs(14, [(layer, head) for layer in range(3) for head in range(12)])
    ),
    "fidelity": lambda: draw_fidelity(test_graphs.made_up_report()),
    "patterns": lambda: draw_patterns(["window:6+global:2", "strided:8"], 24),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("width", [6.8, 3.3])
def test_a_picture_has_the_width_and_the_letters_of_a_paper(name, width, tmp_path):
    with paper_style(width):
        figure = PICTURES[name]()
        save_figure(figure, tmp_path / "picture.pdf")
    assert figure.get_figwidth() == pytest.approx(width)
    shown = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert {text.get_fontsize() for text in shown} == {8}
    if (name, width) != ("heads", 3.3):  # twelve heads do not fit a column
        draw_inside(figure)


@pytest.mark.parametrize("length", [22, 24])
def test_a_head_of_a_sentence_is_no_wider_than_a_page(length: int) -> None:
    for view in (test_heads.made_up_view(length), test_heads.stones_view(length)):
        figure = draw_head(view)
        assert figure.get_figwidth() <= 6.8 + 1e-9
        assert len(figure.axes[0].get_yticklabels()) == length


def test_for_a_paper_as_many_tokens_are_drawn_as_have_room() -> None:
    view = test_heads.made_up_view(40)
    with paper_style():
        figure = draw_head(view)
    assert len(figure.axes[0].get_yticklabels()) == 24
    assert "24 of 40 tokens are shown" in figure.get_label()
    assert len(draw_head(view).axes[0].get_yticklabels()) == 40  # outside all is as it was


def test_text_stays_text(tmp_path: Path) -> None:
    figure = draw_head(test_heads.made_up_view(8))
    svg = save_figure(figure, tmp_path / "head.svg").read_text(encoding="utf-8")
    assert {"incomprehensibi…", "Layer 2, head 5"} <= set(re.findall(r">([^<>]+)</text>", svg))
    pdf = save_figure(figure, tmp_path / "head.pdf").read_bytes()
    assert b"/CIDFontType2" in pdf  # TrueType, and not drawn letter by letter
    assert b"/Type3" not in pdf


def test_a_picture_of_another_hand_is_fitted_too(tmp_path: Path) -> None:
    figure = Figure(figsize=(10, 5))
    figure.subplots().set_title("wide", fontsize=20)
    with paper_style():
        save_figure(figure, tmp_path / "wide.png")
    assert figure.get_size_inches().tolist() == pytest.approx([6.8, 3.4])
    assert figure.axes[0].title.get_fontsize() == 8
