"""The picture of one token that descends the tree over its keys."""

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.text import Text
from torch_geometric.data import HeteroData

from jat_graph import JatConfig, tree_graph
from jat_graph.viz import draw_descent
from tests.viz.support import draw_inside

WORDS = ["book", " $5", " incomprehensibilities", "\n", ".", " ספר"]
CONFIG = JatConfig.clustered(keys=8, groups=2, size=2, segment=16, window=8)


def made_up(length: int, causal: bool = True) -> tuple:
    """Return a graph of the last token's reading, and a word for each token."""
    torch.manual_seed(0)
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, length, 8)
    graph = tree_graph(query * 3, key, config=CONFIG, is_causal=causal)[0]
    return graph, [WORDS[n % len(WORDS)] for n in range(length)]


def looking_from(token: int, graph: HeteroData) -> HeteroData:
    """Put an only query, which stands last, where a token stands."""
    for kind in graph.edge_types:
        if kind[2] == "token":
            graph[kind].edge_index[1] = token
    return graph


def labels(figure):
    return [text for text in figure.axes[0].texts if text.get_rotation() == 90]


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 30, 200, 2000])
@pytest.mark.parametrize("place", [0.0, 0.2, 1.0, None])  # of an encoder's token
def test_everything_lies_inside_and_words_stand_apart(place, length):
    graph, words = made_up(length, place is None)
    if place is not None:
        graph = looking_from(int(place * (length - 1)), graph)
    figure = draw_descent(graph, words)
    renderer = draw_inside(figure)
    assert 0 < len(labels(figure)) <= 6.8 / 0.13 / 2
    boxes = [Text.get_window_extent(text, renderer) for text in labels(figure)]  # without its line
    assert not any(a.overlaps(b) for n, a in enumerate(boxes) for b in boxes[:n])
    assert not any("\n" in text.get_text() for text in labels(figure))


def test_what_is_opened_has_the_colour_of_its_attention_and_all_else_is_faint():
    graph, words = made_up(200)
    axis = draw_descent(graph, words).axes[0]
    dots = {len(own.get_offsets()): own for own in axis.collections if len(own.get_offsets()) > 1}
    opened = graph["opened_by"].edge_index[0]
    means = graph["cluster", "read_by", "token"]
    assert set(dots) == {len(opened), means.num_edges}
    assert to_hex(dots[means.num_edges].get_facecolor()[0]) == "#b8bec6"
    # Of a group that is opened, what stands in it counts, and the keys that are read.
    weight = dots[len(opened)].get_array()
    exact = graph["token", "read_by", "token"]
    assert float(weight.max()) < float(exact.weight.sum() + means.weight.sum()) + 1e-6
    heights = dots[len(opened)].get_offsets()[:, 1]
    clusters = weight[heights == 1].sum()
    inside = torch.isin(graph["token", "in", "cluster"].edge_index[1], opened)
    keys = graph["token", "in", "cluster"].edge_index[0, inside]
    read = torch.isin(exact.edge_index[0], keys)
    assert float(clusters) == pytest.approx(float(exact.weight[read].sum()), rel=1e-4)


def test_the_token_the_levels_and_the_heaviest_key_have_their_words():
    graph, words = made_up(200)
    figure = draw_descent(graph, words)
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert names == ["keys", "clusters", "groups"]
    exact = graph["token", "read_by", "token"]
    heaviest = words[int(exact.edge_index[0, exact.weight.argmax()])].strip()
    assert heaviest[:5] in " ".join(text.get_text() for text in labels(figure))
    caption = figure.get_label()
    assert f"{exact.num_edges} of 200 keys exactly" in caption
    assert f"{graph['cluster', 'read_by', 'token'].num_edges} nodes in the place" in caption


def test_of_a_whole_graph_the_last_token_is_drawn():
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 90, 8)
    graph, words = tree_graph(query, key, config=CONFIG, is_causal=True)[0], WORDS * 15
    assert "of 90 keys exactly" in draw_descent(graph, words).get_label()
    with pytest.raises(ValueError, match="words must be 90"):
        draw_descent(graph, words[1:])


@pytest.mark.parametrize("rest", [True, False])
def test_without_causal_order_all_of_the_text_is_there(rest):
    torch.manual_seed(0)
    query, key = torch.randn(2, 1, 1, 91, 8)
    config, words = CONFIG.replace(propagate=rest), [*WORDS * 15, "."]
    graph = looking_from(20, tree_graph(query[:, :, 20:21] * 3, key, config=config)[0])
    figure = draw_descent(graph, words)
    read = graph["token", "read_by", "token"].edge_index[0]
    assert f"{len(read)} of 91 keys exactly" in figure.get_label()
    (axis, *_) = figure.axes
    low, high = axis.get_xlim()
    assert low < 0 and 90 < high < 92
    # Bars are the first four keys, and the last one, which is in no cluster, both in any case.
    bars = [own for own in axis.collections if type(own).__name__ == "PolyCollection"]
    spans = sorted(
        (p.vertices[:, 0].min(), p.vertices[:, 0].max()) for b in bars for p in b.get_paths()
    )
    assert spans == [(-0.5, 3.5), (89.5, 90.5)]
    assert bool((read > 20).any()) and bool((read < 20).any())
    (label,) = [text for text in axis.texts if text.get_text().endswith("hensibilities")]
    assert label.get_position() == (20, 2)
    assert label.get_horizontalalignment() == "center"
