"""The picture of a head that reads by clusters."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from jat_graph.inspection import BestKey, Cluster, ClusterMember, ClusterReport, ClusterView, Token
from jat_graph.viz import draw_clusters
from tests.viz.support import assert_apart, assert_rows_stand_at_one_height, draw_inside, texts

WORDS = ["book", "$5", "incomprehensibilities", "[CLS]", ".", ",", "ספר"]


def made_up_view(length: int, clusters: int, dense: bool = False) -> ClusterView:
    """Return a view in which token i joined cluster i modulo their number, which names key i."""
    torch.manual_seed(0)
    tokens = tuple(Token(n + 1, WORDS[n % 7]) for n in range(length))
    joined = torch.arange(length) % clusters
    found = tuple(
        Cluster(
            tuple(ClusterMember(t, 0.9, 0.75, 0.1) for t in tokens[n::clusters]),
            (BestKey(tokens[n], 2.5),) * 10,
            hidden_members=1,
        )
        for n in range(clusters)
    )
    place = torch.arange(length)
    report = ClusterReport(2, 5, dense, 1, clusters, 4.0, 0.125, 0.75, 0.1, found)
    attention, before = torch.randn(2, length, length).softmax(-1)
    near = (place[:, None] - place).abs() <= 1
    return ClusterView(report, tokens, joined, near, place == joined[:, None], before, attention)


@pytest.mark.parametrize(
    ("length", "clusters"), [(1, 1), (2, 2), (8, 3), (48, 14), (49, 4), (300, 35)]
)
def test_everything_lies_inside_and_lines_stand_apart(length: int, clusters: int) -> None:
    figure = draw_clusters(made_up_view(length, clusters))
    renderer = draw_inside(figure)
    panels = [axis for axis in figure.axes if axis.images][:3]
    assert_rows_stand_at_one_height(panels, renderer)
    (legend,) = figure.legends
    lines = legend.get_texts()
    assert len(lines) == min(clusters, 7) + (clusters > 7) + 1
    assert_apart([legend.get_title(), *lines, *panels], renderer)


def test_rows_are_sorted_by_cluster_and_coloured_by_it() -> None:
    view = made_up_view(9, 3)
    axis, middle, right, *_ = draw_clusters(view).axes
    order = [0, 3, 6, 1, 4, 7, 2, 5, 8]
    drawn = axis.images[0]
    colours = np.vectorize(lambda value: to_hex(drawn.cmap(drawn.norm(value))), otypes="O")
    shown = colours(np.asarray(drawn.get_array()))
    for row, token in enumerate(order):
        wanted = ["#c8ccd0" if abs(token - key) <= 1 else "#ffffff" for key in range(9)]
        wanted[token % 3] = ("#0072b2", "#e69f00", "#009e73")[token % 3]
        assert shown[row].tolist() == wanted
    for panel, matrix in ((middle, view.attention), (right, view.before)):
        np.testing.assert_array_equal(panel.images[0].get_array(), matrix[order].numpy())
    assert middle.images[0].norm is right.images[0].norm
    edges = [line.get_ydata()[0] for line in axis.lines]
    assert edges == [2.5, 5.5]
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert names[:3] == ["book", "[CLS]", "\u2068ספר\u2069"]


def test_the_legend_has_the_colour_of_each_cluster() -> None:
    figure = draw_clusters(made_up_view(60, 12))
    drawn = next(axis for axis in figure.axes if axis.images).images[0]
    shown = [to_hex(patch.get_facecolor()) for patch in figure.legends[0].get_patches()]
    first = [to_hex(drawn.cmap(drawn.norm(2 + n))) for n in range(8)]
    assert shown == [*first, "#c8ccd0"]
    assert len(set(shown)) == 9


def test_the_picture_says_what_there_is_to_say() -> None:
    view = made_up_view(60, 12, dense=True)
    figure = draw_clusters(view)
    shown, caption = texts(figure), figure.get_label()
    assert "Layer 2, head 5: 12 clusters" in shown
    assert "12 clusters; 12% of the pairs are read exactly, which is 75% of the" in caption
    assert "A text this short is read densely" in caption
    assert not any("read densely" in text for text in shown)  # it stands beside the picture
    assert "best keys of 5 more clusters" in shown
    second = next(text for text in shown if text.startswith("6:  \\$5"))
    assert " … 1 more  →" in second  # the one that is hidden
    assert second.endswith("→  " + " ".join(["\\$5"] * 6) + " … 4 more;  75%")
