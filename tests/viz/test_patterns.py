"""The pictures of patterns: each pair in its place and colour, every label inside."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from jat_graph.patterns import parse_pattern
from jat_graph.viz import draw_patterns
from tests.jumps.patterns.support import all_pairs
from tests.viz.support import assert_apart, draw_inside


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 20, 300])
@pytest.mark.parametrize(
    "specs",
    ["window:4", "window:4+global:2", "strided:5,causal,local:9"],
)
def test_every_label_lies_inside_the_picture_and_apart(specs: str, length: int) -> None:
    figure = draw_patterns(specs.split(","), length)
    renderer = draw_inside(figure)
    shown = [axis for axis in figure.axes if axis.axison]
    legends = [axis.get_legend() for axis in shown if axis.get_legend()]
    assert_apart([*(axis.title for axis in shown), *legends], renderer)


def test_each_pair_has_the_colour_of_the_member_that_allows_it() -> None:
    union = parse_pattern("window:4+global:2")
    (axis,) = draw_patterns([union], 12).axes
    image = axis.images[0]
    drawn = image.cmap(image.norm(image.get_array()))
    for number, member in enumerate(union.members):
        other = union.members[1 - number]
        own, others = (all_pairs(part, 12)[0, 0].numpy() for part in (member, other))
        assert (drawn[own & ~others] == to_rgba(("#0072b2", "#e69f00")[number])).all()
        assert (drawn[own & others] == to_rgba("#222222")).all()
    white = (drawn == np.ones(4)).all(-1)
    assert 144 - white.sum() == union.num_edges(12)
    assert [text.get_text() for text in axis.get_legend().get_texts()] == [
        "window:4",
        "global:2",
        "several",
    ]


def test_heads_that_take_turns_have_a_panel_each() -> None:
    figure = draw_patterns([parse_pattern("strided:4"), parse_pattern("causal")], 16)
    titles = [axis.get_title() for axis in figure.axes if axis.axison]
    assert [title.split("\n")[0] for title in titles] == ["strided:4", "strided:4", "causal"]


@pytest.mark.parametrize(
    ("specs", "length", "message"),
    [([], 8, "patterns must"), (["causal"], 0, "length must"), (["causal"], 10**6, "length must")],
)
def test_what_cannot_be_drawn_is_one_line(specs: list[str], length: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_patterns([parse_pattern(spec) for spec in specs], length)
