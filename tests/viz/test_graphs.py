"""The pictures of many heads: each graph in its place, no edge lost, a dot for each on clusters."""

from collections.abc import Iterator

import pytest
import torch
from matplotlib.colors import to_hex

from jat_graph import JatConfig
from jat_graph.inspection import Fidelity, GraphView, HeadFidelity, HeadReport, Token
from jat_graph.viz import draw_fidelity, draw_graphs, save_figure
from tests.viz.support import assert_apart, draw_inside, texts

PLACES = ((0, 1), (0, 3), (2, 1), (2, 3), (2, 11))


def made_up_graphs(length: int, places=PLACES) -> Iterator[GraphView]:
    """Yield graphs with one edge each, whose weight says which head it is."""
    tokens = tuple(Token(n, f"token{n}") for n in range(length))
    for layer, head in places:
        weights = torch.zeros(length, length)
        weights[1 % length, length - 1] = (1 + layer + head) / 20
        yield GraphView(HeadReport(layer, head, 6.0, 0.25, 0.1, ()), tokens, weights)


@pytest.mark.slow
@pytest.mark.parametrize("length", [2, 14, 500])
@pytest.mark.parametrize("places", [PLACES, PLACES[:1], [(0, head) for head in range(12)]])
def test_every_graph_has_its_place_and_nothing_overlaps(length, places) -> None:
    figure = draw_graphs(made_up_graphs(length, places))
    renderer = draw_inside(figure)
    drawn = [axis for axis in figure.axes if axis.images]
    assert [axis.get_title() for axis in drawn] == ["25%"] * len(places)
    assert_apart([*(axis.title for axis in drawn), *drawn], renderer)
    rows_named = {axis.get_ylabel() for axis in figure.axes} - {""}
    assert {f"layer {layer}" for layer, _ in places} <= rows_named
    named = [axis for axis in figure.axes if axis.get_xlabel().startswith("head")]
    assert [axis.get_xlabel().split()[1] for axis in named] == [
        str(head) for head in sorted({head for _, head in places})
    ]
    rows = {}
    for axis, (layer, _) in zip(drawn, places, strict=True):
        rows.setdefault(layer, set()).add(round(axis.get_position().y0, 6))
    assert all(len(heights) == 1 for heights in rows.values())


@pytest.mark.parametrize("length", [14, 500])
def test_no_edge_is_lost_where_dots_stand_for_many_pairs(length: int) -> None:
    figure = draw_graphs(made_up_graphs(length))
    for axis, (layer, head) in zip((a for a in figure.axes if a.images), PLACES, strict=True):
        shown = axis.images[0].get_array()
        assert len(shown) == min(length, 96)
        assert shown.compressed().tolist() == pytest.approx([(1 + layer + head) / 20])
    assert len({axis.images[0].norm for axis in figure.axes if axis.images}) == 1
    said = "a dot is the strongest of some 6² pairs" in figure.get_label()
    assert said == (length == 500)


def test_no_graph_is_refused() -> None:
    with pytest.raises(ValueError, match="views must"):
        draw_graphs([])


# --- what heads on clusters lose -----------------------------------------------------------------


def made_up_report(layers: int = 3, heads: int = 4) -> Fidelity:
    found = tuple(
        HeadFidelity(n, h, 0.1 + 0.01 * h, 0.6 + 0.02 * h, 0.1, 0.02 * (n + 1) + 0.001 * h, 0)
        for n in range(layers)
        for h in range(heads)
    )
    return Fidelity(JatConfig.clustered(), found, 0.9912, 0.9957, sequences=4, tokens=2048)


@pytest.mark.parametrize("layers", [1, 3, 12, 40])
def test_every_head_is_a_dot_in_the_colour_of_its_layer(layers: int) -> None:
    report = made_up_report(layers)
    figure = draw_fidelity(report)
    draw_inside(figure)
    (axis,) = figure.axes
    assert len(axis.collections) == layers
    for layer, dots in enumerate(axis.collections):
        own = [(100 * h.mass, h.error) for h in report.heads if h.layer == layer]
        assert dots.get_offsets().tolist() == [pytest.approx(dot) for dot in own]
    assert len({to_hex(dots.get_facecolor()[0]) for dots in axis.collections}) == layers
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [str(n) for n in range(layers)]
    assert (axis.get_xlim(), axis.get_ylim()[0]) == ((0, 102), 0)
    assert axis.get_ylim()[1] > max(head.error for head in report.heads)


def test_the_picture_says_what_was_measured(tmp_path):
    figure = draw_fidelity(made_up_report())
    said = figure.get_label()
    assert not any("sequences" in text for text in texts(figure))
    wanted = "12 heads on clusters that read 11.5% of the keys exactly, 4 sequences of 512 tokens"
    assert wanted in said
    assert "token states 0.991, of mean embeddings 0.996" in said
    assert save_figure(figure, tmp_path / "heads.png").stat().st_size > 5000
