"""A picture of what heads that read by clusters lose, over how much they read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jat_graph.viz.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jat_graph.inspection.fidelity import Fidelity

WIDTH, HEIGHT = 6.4, 4.2  # inches, without the heading
LAYER_COLOURS = "viridis"
MOST_ROWS = 16  # of layers below each other


def draw_fidelity(report: Fidelity) -> Figure:
    """Draw the error of each head over the share of keys that it reads exactly.

    A head is a dot, its colour says which layer it is in. Below and to the left is better: less is
    read, and less is lost.

    Args:
        report: What :func:`jat_graph.fidelity` returned.

    Returns:
        A matplotlib figure that belongs to no window; pass it to :func:`save_figure`.

    Raises:
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).

    Reference:
        This library's own.
    """
    heading = (
        f"{len(report.heads)} heads on clusters, {report.sequences} sequences of "
        f"{report.tokens / report.sequences:.0f} tokens on average ({report.dense} read densely): "
        f"cosine of token states {report.token_cosine:.3f}, "
        f"of mean embeddings {report.embedding_cosine:.3f}"
    )
    figure = new_figure(WIDTH, HEIGHT, heading=heading, size=10)
    from matplotlib import colormaps  # which is there, or there would be no figure

    axis = figure.subplots()
    layers = sorted({head.layer for head in report.heads})
    # The brightest yellow would not be seen on white.
    colours = colormaps[LAYER_COLOURS](np.linspace(0, 0.9, len(layers)))
    for layer, colour in zip(layers, colours, strict=True):
        own = [head for head in report.heads if head.layer == layer]
        shares, errors = [100 * head.share for head in own], [head.error for head in own]
        axis.scatter(shares, errors, color=colour, s=22, alpha=0.85, lw=0, label=str(layer))
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("keys that a query reads exactly, %", fontsize=9)
    axis.set_ylabel("error of the output, ‖o' − o‖ / ‖o‖", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
    columns = -(-len(layers) // MOST_ROWS)
    figure.legend(title="layer", loc="outside right upper", fontsize=8, ncols=columns)
    return figure
