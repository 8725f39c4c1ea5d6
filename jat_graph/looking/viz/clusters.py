"""Pictures of what heads that read by clusters lose, and of their time over the length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jat_graph.looking.viz.figures import COLOURS, new_figure, page_width, save_figure, set_caption

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from jat_graph.looking.inspection.fidelity import Fidelity

WIDTH, HEIGHT = 6.4, 4.2  # inches, without the heading
LAYER_COLOURS = "viridis"
MOST_ROWS = 16  # of layers below each other


def draw_fidelity(report: Fidelity) -> Figure:
    """Draw the error of each head over how much of its own attention is on keys that are exact.

    A head is a dot, its colour says which layer it is in. Lower is better; to the left are heads
    whose attention is mostly on keys that are read by means.

    Args:
        report: What :func:`jat_graph.fidelity` returned.

    Returns:
        The figure, which :func:`save_figure` writes; its label is its caption.

    Raises:
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).
    """
    figure = new_figure(WIDTH, HEIGHT)
    share = sum(head.share for head in report.heads) / len(report.heads)
    set_caption(
        figure,
        f"{len(report.heads)} heads on clusters that read {share:.1%} of the keys exactly, "
        f"{report.sequences} sequences of "
        f"{report.tokens / report.sequences:.0f} tokens on average ({report.dense} read densely): "
        f"cosine of token states {report.token_cosine:.3f}, "
        f"of mean embeddings {report.embedding_cosine:.3f}.",
    )
    from matplotlib import colormaps  # which is there, or there would be no figure

    axis = figure.subplots()
    layers = sorted({head.layer for head in report.heads})
    # The brightest yellow would not be seen on white.
    colours = colormaps[LAYER_COLOURS](np.linspace(0, 0.9, len(layers)))
    for layer, colour in zip(layers, colours, strict=True):
        own = [head for head in report.heads if head.layer == layer]
        masses, errors = [100 * head.mass for head in own], [head.error for head in own]
        axis.scatter(masses, errors, color=colour, s=22, alpha=0.85, lw=0, label=str(layer))
    axis.set_xlim(0, 102)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("own attention on keys that are exact, %", fontsize=9)
    axis.set_ylabel("error of the output, ‖o' − o‖ / ‖o‖", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
    columns = -(-len(layers) // MOST_ROWS)
    figure.legend(title="layer", loc="outside right upper", fontsize=8, ncols=columns)
    return figure


def draw_lengths(points: list[dict[str, float]], path: Path) -> None:
    """Draw seconds by SDPA and by clusters over the length, and how near states are."""
    figure = new_figure(page_width(), 2.7)
    seconds, near = figure.subplots(1, 2)
    lengths, colours = [point["tokens"] for point in points], iter(COLOURS)
    states = {"token_cosine": "states of tokens", "embedding_cosine": "mean embedding"}
    for axis, names in ((seconds, {"sdpa": "SDPA", "clusters": "clusters"}), (near, states)):
        for (name, label), colour in zip(names.items(), colours, strict=False):
            axis.plot(lengths, [p[name] for p in points], "o-", ms=4, color=colour, label=label)
        axis.set(xlabel="tokens", xticks=[n for n in lengths if n > max(lengths) / 8])
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    seconds.set(ylabel="seconds for a text", ylim=(0, None))
    lowest = min(0.9, *(point[name] for point in points for name in states))
    near.set(ylabel="cosine to the model on SDPA", ylim=(lowest, 1.005))
    save_figure(figure, path)
