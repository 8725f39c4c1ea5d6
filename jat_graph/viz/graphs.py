"""A picture of the graphs of many heads: a small matrix each, layers below each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from jat_graph.inspection.reports import StoneReport
from jat_graph.viz.heads import graph_colours, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

    from jat_graph.inspection.reports import GraphView, HeadReport

CELL = 1.35  # inches, of a matrix
BAR = 0.7  # inches, for the colour bar
LEAST_WIDTH = 4.5  # inches
MOST_PIXELS = 96  # in a row of a matrix: each is still as large as a dot of the picture


class _Thumbnail(NamedTuple):
    """What is kept of a head."""

    report: HeadReport
    length: int  # tokens shown
    weights: Tensor  # [n, n], the strongest in each of n × n blocks


def draw_graphs(views: Iterable[GraphView]) -> Figure:
    """Draw the graphs of many heads as small matrices, a row for each layer.

    Rows of a matrix are the tokens that look, columns the tokens looked at, in one colour scale for
    all heads, whose steps are those of square roots. Above each stands its density, with stones
    that of links. Of more than 96 tokens a dot shows the strongest of some neighbouring pairs, so
    that no edge is lost; only these dots are kept, and views may be made one after the other.

    Args:
        views: The graphs, from :func:`jat_graph.inspection.view_graphs`; of one text.

    Returns:
        A matplotlib figure that belongs to no window; pass it to :func:`save_figure`.

    Raises:
        ValueError: If there is no graph.
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).

    Reference:
        Clark et al. 2019, "What Does BERT Look At?", shows heads of a model beside each other.
    """
    shown = [_thumbnail(view) for view in views]
    if not shown:
        raise ValueError("views must be at least one, got none")
    layers = sorted({own.report.layer for own in shown})
    heads = sorted({own.report.head for own in shown})
    width = max(LEAST_WIDTH, len(heads) * CELL + 0.2)
    height = len(layers) * (CELL + 0.2) + BAR
    figure = new_figure(width, height, heading=_heading(shown), size=10)
    from matplotlib.cm import ScalarMappable  # which is there, or there would be no figure
    from matplotlib.colors import PowerNorm

    axes = figure.subplots(len(layers), len(heads), squeeze=False)
    for axis in axes.ravel():
        axis.set_axis_off()
    norm = PowerNorm(0.5, vmin=0.0, vmax=max(float(own.weights.max()) for own in shown) or 1.0)
    for own in shown:
        axis = axes[layers.index(own.report.layer), heads.index(own.report.head)]
        _draw_thumbnail(axis, own, norm)
    colours = ScalarMappable(norm, graph_colours())
    bar = figure.colorbar(
        colours, ax=axes, location="bottom", shrink=0.5, aspect=40, pad=0.12 / len(layers)
    )
    bar.set_label(_meaning(shown[0].report), fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure


def _thumbnail(view: GraphView) -> _Thumbnail:
    weights, length = view.weights, len(view.tokens)
    if length > MOST_PIXELS:
        weights = F.adaptive_max_pool2d(weights[None], MOST_PIXELS)[0]
    return _Thumbnail(view.report, length, weights)


def _draw_thumbnail(axis: Axes, own: _Thumbnail, norm: Normalize) -> None:
    report = own.report
    weights = np.ma.masked_equal(own.weights.numpy(), 0.0)  # no edge: white
    axis.imshow(weights, cmap=graph_colours(), norm=norm, interpolation="nearest")
    axis.set_axis_on()
    axis.set(xticks=[], yticks=[])
    place = f"layer {report.layer}, head {report.head}"
    axis.set_title(f"{place}: {report.density:.0%}", fontsize=6.5, pad=3)


def _heading(shown: list[_Thumbnail]) -> str:
    """Say how many tokens there are, what the shares are of, and what a dot is."""
    length = shown[0].length
    joined = "links to stones" if isinstance(shown[0].report, StoneReport) else "joined pairs"
    heading = f"Graph of each head on {length} tokens, and its share of {joined} in the whole text"
    if length > MOST_PIXELS:
        return f"{heading}; a dot is the strongest of some {-(-length // MOST_PIXELS)}² pairs"
    return heading


def _meaning(report: HeadReport) -> str:
    if isinstance(report, StoneReport):
        return "share of the walks from a token (row) that end at another (column)"
    return "share of keys that voted for a pair of tokens (row, column)"
