"""The picture of what heads on clusters lose: a dot for each."""

import pytest
from matplotlib.colors import to_hex

from jat_graph import JatConfig
from jat_graph.inspection import Fidelity, HeadFidelity
from jat_graph.viz import draw_fidelity, save_figure
from tests.viz.support import draw_inside, texts


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
