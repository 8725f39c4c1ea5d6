"""The picture of a head whose jumps go along stones."""

from dataclasses import replace

import pytest
import torch
from matplotlib.colors import to_hex

from jat_graph.inspection import (
    HeadView,
    Jump,
    Link,
    SteppingStone,
    Stone,
    StoneReport,
    Token,
)
from jat_graph.viz import draw_head
from tests.viz.support import assert_apart, assert_rows_stand_at_one_height, draw_inside, texts

WORDS = ["book", "costs", "book", "$5", "incomprehensibilities", "[CLS]", ".", "more"]


def made_up_view(length: int, stones: int = 6) -> HeadView:
    """Return a view in which the first token jumps to the last, over the first two stones."""
    torch.manual_seed(0)
    tokens = tuple(Token(n + 1, WORDS[n % 8] + str(n // 8 or "")) for n in range(length))
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
    over = tuple(
        SteppingStone(stone.token, 1.5, 2.0, stone.side, share)
        for stone, share in zip(made, (0.75, 0.25), strict=False)
    )
    jump = Jump(*ends, weight=0.3, before=0.01, after=0.11, stones=over, value_update=0.0)
    report = StoneReport(
        2, 5, 1.0, 0.2, 0.4, (jump,), ((0.5, 0.0, -0.25),),
        linked=0.9, num_stones=stones, median_size=1.5, stones=made,
    )  # fmt: skip
    scores = torch.randn(length, length)
    weights = torch.rand(length, length)
    return HeadView(report, tokens, scores, weights, scores * 0.5, weights - 0.5)


@pytest.mark.parametrize("length", [2, 8, 16, 30, 48])
def test_every_label_lies_inside_and_rows_stand_beside_each_other(length: int) -> None:
    figure = draw_head(made_up_view(length, stones=2 * length))
    renderer = draw_inside(figure)
    assert_rows_stand_at_one_height(figure.axes[:3], renderer)
    labels = list(figure.axes[1].texts)
    assert len(labels) == min(2 * length, int(max(1.8, 0.115 * length) / 0.215))
    assert_apart(labels, renderer)


def test_lines_are_links_and_the_ways_of_jumps() -> None:
    view = made_up_view(8)
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
    figure = draw_head(made_up_view(8, stones=12))
    shown, caption = texts(figure), figure.get_label()
    assert "Layer 2, head 5" in shown
    assert "threshold t = 1, 90% of the tokens on 12 stones, 1.5 on each (median)" in caption
    assert "θ of queries +0.5, keys +0, values -0.25" in caption
    assert "Stones (4 more not drawn)" in shown
    assert "1.0% → 11.0% (+10.0 points),  through book 1 + (75%), book 1 − (25%)" in caption
    assert {"1: book 1 → more (+10.0)", "other links; wider: stronger"} <= set(shown)


def test_a_jump_goes_over_its_strong_stones_alone() -> None:
    view = made_up_view(8)
    jump = view.report.jumps[0]
    shares = (0.7, 0.2, 0.1)
    over = tuple(
        SteppingStone(stone.token, 1.5, 2.0, stone.side, share)
        for stone, share in zip(view.report.stones, shares, strict=False)
    )
    report = replace(view.report, jumps=(replace(jump, stones=over),))
    panel = draw_head(replace(view, report=report)).axes[1]
    ways = [c for c in panel.collections if to_hex(c.get_colors()[0]) == "#d81b60"]
    assert len(ways) == 1
    faint = [c.get_alpha() for c in panel.collections if c not in ways]
    assert faint and max(faint) <= 0.5


def test_links_of_tokens_that_are_not_shown_are_left_out() -> None:
    view = made_up_view(12)
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
    view = made_up_view(30, stones=60)
    stones = view.report.stones
    weak = replace(
        view.report.jumps[0],
        stones=(SteppingStone(stones[-1].token, 1.5, 2.0, stones[-1].side, 0.05),),
    )
    many = replace(
        view.report.jumps[0],
        stones=tuple(SteppingStone(s.token, 1.5, 2.0, s.side, 0.2) for s in stones[:40]),
    )
    report = replace(view.report, jumps=(many, weak))
    figure = draw_head(replace(view, report=report))
    said = texts(figure)
    assert "Stones (44 more not drawn)" in said
    assert any(name.startswith(stones[-1].token.text) and name[-1] in "+−" for name in said)
