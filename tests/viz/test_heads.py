"""The picture of a head: written whole, its labels inside, its jumps and stones marked."""

import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from jat_graph.inspection import (
    HeadReport,
    HeadView,
    Jump,
    Link,
    SteppingStone,
    Stone,
    StoneReport,
    Token,
)
from jat_graph.viz import draw_head, save_figure
from tests.viz.support import assert_apart, assert_rows_stand_at_one_height, draw_inside, texts

WORDS = ["book", "costs", "book", "$5", "incomprehensibilities", "[CLS]", ".", "more"]


def made_up_tokens(length):
    """Return tokens of which the first come twice."""
    return tuple(Token(n + 1, WORDS[n % 8] + str(n // 8 or "")) for n in range(length))


def view_of(report, tokens):
    """Return a view of random scores."""
    torch.manual_seed(0)
    scores = torch.randn(len(tokens), len(tokens)) * 2
    weights = torch.rand(len(tokens), len(tokens)).round(decimals=1).fill_diagonal_(0)
    return HeadView(report, tokens, scores, weights, scores * 0.5, weights - 0.5)


def made_up_view(length, jumps=3):
    """Return a view whose first tokens jump to the last ones."""
    tokens = made_up_tokens(length)
    marked = tuple(
        Jump(
            query=tokens[n],
            key=tokens[length - 1 - n],
            weight=0.25,
            before=0.01,
            after=0.11,
            stones=tuple(SteppingStone(token, 2.0, 3.0) for token in tokens[: 4 * n]),
            hidden_stones=1,
        )
        for n in range(jumps)
    )
    return view_of(HeadReport(2, 5, 6.0, 0.4, 0.1, marked), tokens)


def stepping(stones, *shares):
    """Return how a jump goes over some stones."""
    pairs = zip(stones, shares, strict=False)
    return tuple(SteppingStone(own.token, 1.5, 2.0, own.side, share) for own, share in pairs)


def stones_view(length, stones=6):
    """Return a view in which the first token jumps to the last, over the first two stones."""
    tokens = made_up_tokens(length)
    ends = tokens[0], tokens[-1]
    made = tuple(
        Stone(
            tokens[n // 2 % length],
            1 - 2 * (n % 2),
            0.5 / (n + 1),
            tuple(Link(token, 0.5 + n) for token in (ends if n < 2 else ends[:1])),
            hidden_links=1,
        )
        for n in range(stones)
    )
    over = stepping(made, 0.75, 0.25)
    jump = Jump(*ends, weight=0.3, before=0.01, after=0.11, stones=over)
    report = StoneReport(
        2, 5, 1.0, 0.2, 0.4, (jump,), ((0.5, 0.0, -0.25),),
        linked=0.9, num_stones=stones, median_size=1.5, stones=made,
    )  # fmt: skip
    return view_of(report, tokens)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "hops"), [(2, 0), (8, 6), (16, 0), (30, 0), (48, 1)])
def test_every_label_lies_inside_the_picture_and_titles_apart(length: int, hops: int) -> None:
    view = made_up_view(length, jumps=1)
    strengths = ((0.5, -0.25, 0.125),) * hops
    figure = draw_head(replace(view, report=replace(view.report, strengths=strengths)))
    renderer = draw_inside(figure)
    used, (width, height) = figure.get_tightbbox(renderer), figure.get_size_inches()
    assert used.width > 0.8 * width
    assert used.height > 0.8 * height
    heading = figure._suptitle.get_window_extent(renderer)
    assert figure.get_label().count("+0.125") == hops
    titles = [axis.title.get_window_extent(renderer) for axis in figure.axes[:3]]
    assert not any(heading.overlaps(title) for title in titles)


def test_right_to_left_tokens_are_isolated() -> None:
    view = made_up_view(4, jumps=1)
    tokens = (replace(view.tokens[0], text="ספר"), *view.tokens[1:])
    jump = replace(view.report.jumps[0], query=tokens[0])
    figure = draw_head(replace(view, tokens=tokens, report=replace(view.report, jumps=(jump,))))
    assert any("1: \u2068ספר\u2069 → " in text for text in texts(figure))


def test_the_picture_says_which_head_and_which_jumps() -> None:
    figure = draw_head(made_up_view(12))
    shown, caption = texts(figure), figure.get_label()
    assert "Layer 2, head 5: threshold ρ = 6, density 40.0%" in caption
    assert {"Layer 2, head 5", "1: book 1 → \\$51 (+10.0)"} <= set(shown)
    assert "incomprehensibi…" in shown  # long words are cut
    assert {"book 1", "book 3", "costs"} <= set(shown)  # words that come twice have positions


def test_every_jump_is_marked_in_every_panel() -> None:
    figure = draw_head(made_up_view(12, jumps=3))
    for axis in figure.axes[:3]:
        marks = [p for p in axis.patches if isinstance(p, Rectangle) and not p.get_fill()]
        corners = [(mark.get_x() + 0.5, mark.get_y() + 0.5) for mark in marks]
        assert corners == [(11.0, 0.0), (10.0, 1.0), (9.0, 2.0)]  # column k, row i
    gained = figure.axes[2].images[0]
    assert gained.get_clim() == (-50.0, 50.0)
    assert gained.get_array().max() == pytest.approx(50)  # points, of gains of a half at most


def test_an_empty_graph_is_drawn_and_said() -> None:
    view = made_up_view(6, jumps=0)
    report = replace(view.report, threshold=float("inf"))
    figure = draw_head(replace(view, report=report, weights=torch.zeros(6, 6)))
    figure.draw_without_rendering()
    assert "ρ = ∞" in figure.get_label()
    assert "No pair of shown tokens is joined" in figure.get_label()


def test_a_long_text_is_cut_down_to_its_strongest_jumps_and_says_so() -> None:
    view = made_up_view(300, jumps=3)
    gains = torch.zeros(300, 300)
    for place, jump in enumerate(view.report.jumps):
        gains[jump.query.index - 1, jump.key.index - 1] = 0.9 - place / 10
    view = replace(view, gains=gains, weights=gains.sign())
    figure = draw_head(view, most_tokens=8)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    numbers = [int(label.split()[-1]) for label in labels]
    assert len(labels) == 8
    assert {1, 2, 3, 298, 299, 300} <= set(numbers)  # positions of the jumps' tokens
    assert numbers == sorted(numbers)
    assert len([p for p in figure.axes[0].patches if not p.get_fill()]) == 3
    assert "8 of 300 tokens are shown" in figure.get_label()
    assert "tokens are shown" not in draw_head(made_up_view(8)).get_label()
    assert draw_head(view).axes[0].images[0].get_array().shape == (48, 48)


@pytest.mark.parametrize("most", [0, 201])
def test_a_picture_has_a_number_of_tokens_that_can_be_seen(most: int) -> None:
    with pytest.raises(ValueError, match=f"most_tokens must be .*, got {most}"):
        draw_head(made_up_view(4), most_tokens=most)


def test_a_picture_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = save_figure(draw_head(made_up_view(8)), tmp_path / "head.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"ending in .png, .svg or .pdf"):
        save_figure(Figure(), tmp_path / "head.jpg")
    with pytest.raises(OSError, match="nowhere"):
        save_figure(Figure(), tmp_path / "nowhere" / "head.png")
    path.write_bytes(b"old")

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="No space left"):
        save_figure(Figure(), path)
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["head.png"]


def test_letters_that_no_font_has_are_one_line(tmp_path, caplog):
    figure = Figure()
    figure.suptitle("本の値段 \U000e0041")  # the last is in no font
    with caplog.at_level(logging.WARNING, logger="jat_graph"):
        save_figure(figure, tmp_path / "picture.png")
    (line,) = caplog.messages
    assert "characters are drawn as boxes" in line and "rcParams['font.family']" in line


@pytest.mark.slow
@pytest.mark.parametrize("length", [2, 8, 16, 30, 48])
def test_labels_of_stones_lie_inside_and_rows_stand_beside_each_other(length: int) -> None:
    figure = draw_head(stones_view(length, stones=2 * length))
    renderer = draw_inside(figure)
    assert_rows_stand_at_one_height(figure.axes[:3], renderer)
    labels = list(figure.axes[1].texts)
    assert len(labels) == min(2 * length, int(max(1.8, 0.115 * length) / 0.215))
    assert_apart(labels, renderer)


def test_lines_are_links_and_the_ways_of_jumps() -> None:
    view = stones_view(8)
    panel = draw_head(view).axes[1]
    heights = {text.get_text(): text.get_position()[1] for text in panel.texts}
    assert list(heights) == [  # in the text's order, as the report has them
        "book 1 +", "book 1 −", "costs +", "costs −", "book 3 +", "book 3 −",
    ]  # fmt: skip
    drawn = {
        (to_hex(lines.get_colors()[0]), *line[:, 1], round(width, 6))
        for lines in panel.collections
        for line, width in zip(lines.get_segments(), lines.get_linewidths(), strict=True)
    }
    book, other = heights["book 1 +"], heights["book 1 −"]
    ways = {("#d81b60", 0, book, 7, 2.475), ("#d81b60", 0, other, 7, 1.225)}
    assert {line for line in drawn if line[0] == "#d81b60"} == ways
    links = {
        ("#b8bec6", row, height, row, round(0.2 + 1.2 * (0.5 + n) / 5.5, 6))
        for n, height in enumerate(heights.values())
        for row in ((0, 7) if n < 2 else (0,))
    }
    assert drawn - ways == links


def test_the_picture_says_what_there_is_to_say_of_stones() -> None:
    figure = draw_head(stones_view(8, stones=12))
    shown, caption = texts(figure), figure.get_label()
    assert "Layer 2, head 5" in shown
    assert "threshold t = 1, 90% of the tokens on 12 stones, 1.5 on each (median)" in caption
    assert "θ of queries +0.5, keys +0, values -0.25" in caption
    assert "Stones (4 more not drawn)" in shown
    assert {"1: book 1 → more (+10.0)", "other links; wider: stronger"} <= set(shown)


def test_a_jump_goes_over_its_strong_stones_alone() -> None:
    view = stones_view(8)
    jump = view.report.jumps[0]
    over = stepping(view.report.stones, 0.7, 0.2, 0.1)
    report = replace(view.report, jumps=(replace(jump, stones=over),))
    panel = draw_head(replace(view, report=report)).axes[1]
    ways = [c for c in panel.collections if to_hex(c.get_colors()[0]) == "#d81b60"]
    assert len(ways) == 1
    faint = [c.get_alpha() for c in panel.collections if c not in ways]
    assert faint and max(faint) <= 0.5


def test_links_of_tokens_that_are_not_shown_are_left_out() -> None:
    view = stones_view(12)
    gains, weights = torch.zeros(12, 12), torch.zeros(12, 12)
    gains[0, 11] = weights[0, 11] = weights[3, 5] = 0.5
    figure = draw_head(replace(view, gains=gains, weights=weights), most_tokens=4)
    panel = figure.axes[1]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "book 1", "\\$5 4", "[CLS] 6", "\\$51 12",
    ]  # fmt: skip
    ends = {tuple(line[[0, 2], 1]) for c in panel.collections for line in c.get_segments()}
    assert ends == {(0, 0), (3, 3), (0, 3)}
    assert "costs 2 +" in [text.get_text() for text in panel.texts]  # a stone may be any token


def test_each_jump_has_a_stone_where_many_are_left_out() -> None:
    view = stones_view(30, stones=60)
    stones = view.report.stones
    (jump,) = view.report.jumps
    weak = replace(jump, stones=stepping(stones[-1:], 0.05))
    many = replace(jump, stones=stepping(stones[:40], *[0.2] * 40))
    report = replace(view.report, jumps=(many, weak))
    figure = draw_head(replace(view, report=report))
    said = texts(figure)
    assert "Stones (44 more not drawn)" in said
    assert any(name.startswith(stones[-1].token.text) and name[-1] in "+−" for name in said)


@pytest.mark.parametrize("length", [22, 24])
def test_a_head_of_a_sentence_is_no_wider_than_a_page(length: int) -> None:
    for view in (made_up_view(length), stones_view(length)):
        figure = draw_head(view)
        assert figure.get_figwidth() <= 6.8 + 1e-9
        assert len(figure.axes[0].get_yticklabels()) == length


def test_text_stays_text(tmp_path: Path) -> None:
    figure = draw_head(made_up_view(8))
    svg = save_figure(figure, tmp_path / "head.svg").read_text(encoding="utf-8")
    assert {"incomprehensibi…", "Layer 2, head 5"} <= set(re.findall(r">([^<>]+)</text>", svg))
    pdf = save_figure(figure, tmp_path / "head.pdf").read_bytes()
    assert b"/CIDFontType2" in pdf  # TrueType, and not drawn letter by letter
    assert b"/Type3" not in pdf
