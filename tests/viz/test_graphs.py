"""The picture of many heads: each graph in its place, nothing cut, no edge lost."""

from collections.abc import Iterator

import pytest
import torch

from jat_graph.inspection import GraphView, HeadReport, Token
from jat_graph.viz import draw_graphs
from tests.viz.support import assert_apart, draw_inside

PLACES = ((0, 1), (0, 3), (2, 1), (2, 3), (2, 11))


def made_up_graphs(length: int, places=PLACES) -> Iterator[GraphView]:
    """Yield graphs with one edge each, whose weight says which head it is."""
    tokens = tuple(Token(n, f"token{n}") for n in range(length))
    for layer, head in places:
        weights = torch.zeros(length, length)
        weights[1 % length, length - 1] = (1 + layer + head) / 20
        yield GraphView(HeadReport(layer, head, 6.0, 0.25, 0.1, ()), tokens, weights)


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
