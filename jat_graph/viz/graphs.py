"""A picture of the graphs of many heads: a small matrix each, layers below each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch.nn.functional as F

from jat_graph.inspection.reports import StoneReport
from jat_graph.viz.figures import new_figure
from jat_graph.viz.heads import graph_colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jat_graph.inspection.reports import GraphView

CELL = 1.35  # inches, of a matrix
BAR = 0.7  # inches, for the colour bar
LEAST_WIDTH = 4.5  # inches
MOST_PIXELS = 96  # in a row of a matrix: each is still as large as a dot of the picture


def draw_graphs(views: Iterable[GraphView]) -> Figure:
    """Draw the graphs of many heads as small matrices, a row for each layer.

    Rows of a matrix are the tokens that look, columns the tokens looked at, in one colour scale of
    square roots for all heads. Above each stands its density, with stones that of links. Of more
    than 96 tokens a dot shows the strongest of some neighbouring pairs, so that no edge is lost;
    only these dots are kept, and views may be made one after the other.

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
    shown = []
    for view in views:
        weights = view.weights
        if len(view.tokens) > MOST_PIXELS:  # single pairs could not be seen
            weights = F.adaptive_max_pool2d(weights[None], MOST_PIXELS)[0]
        shown.append(replace(view, weights=weights))
    if not shown:
        raise ValueError("views must be at least one, got none")
    layers = sorted({own.report.layer for own in shown})
    heads = sorted({own.report.head for own in shown})
    width = max(LEAST_WIDTH, len(heads) * CELL + 0.2)
    height = len(layers) * (CELL + 0.2) + BAR
    length = len(shown[0].tokens)
    joined, meaning = "joined pairs", "share of keys that voted for a pair of tokens (row, column)"
    if isinstance(shown[0].report, StoneReport):
        joined = "links to stones"
        meaning = "share of the walks from a token (row) that end at another (column)"
    heading = f"Graph of each head on {length} tokens, and its share of {joined} in the whole text"
    if length > MOST_PIXELS:
        heading += f"; a dot is the strongest of some {-(-length // MOST_PIXELS)}² pairs"
    figure = new_figure(width, height, heading=heading, size=10)
    from matplotlib.colors import PowerNorm  # which is there, or there would be no figure

    axes = figure.subplots(len(layers), len(heads), squeeze=False)
    for axis in axes.ravel():
        axis.set_axis_off()
    norm = PowerNorm(0.5, vmin=0.0, vmax=max(float(own.weights.max()) for own in shown) or 1.0)
    for own in shown:
        report = own.report
        axis = axes[layers.index(report.layer), heads.index(report.head)]
        matrix = np.ma.masked_equal(own.weights.numpy(), 0.0)  # no edge: white
        image = axis.imshow(matrix, cmap=graph_colours(), norm=norm, interpolation="nearest")
        axis.set_axis_on()
        axis.set(xticks=[], yticks=[])
        title = f"layer {report.layer}, head {report.head}: {report.density:.0%}"
        axis.set_title(title, fontsize=6.5, pad=3)
    bar = figure.colorbar(
        image, ax=axes, location="bottom", shrink=0.5, aspect=40, pad=0.12 / len(layers)
    )
    bar.set_label(meaning, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure
