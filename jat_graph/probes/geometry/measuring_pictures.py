"""Pictures of what was measured: over layers, over numbers of edges, over relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.probes.geometry.measures import MEASURES
from jat_graph.viz import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which all readers tell apart; markers differ, too.
COLOURS, MARKERS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#222222"), "osD^v"
QUIET = "#767676"
MOST_EDGES = 12  # of distances that are drawn: of longer ones there are few
ROW = 0.24  # inches, of a relation

Rows = Sequence[Mapping[str, Any]]


def draw_measures(rows: Rows) -> Figure:
    """Draw the four measures of a structural probe over layers, and those of words in a line."""
    figure = new_figure(9.5, 6.5)
    models = dict.fromkeys(row["model"] for row in rows if row["layer"] is not None)
    axes = figure.subplots(2, 2).ravel()
    for axis, measure in zip(axes, MEASURES, strict=True):
        for number, model in enumerate(name for name in models if "−" not in name):
            own = [row for row in rows if row["model"] == model]
            _draw_line(axis, own, "layer", measure, number, model)
        for row in rows:
            if row["layer"] is None:
                axis.axhline(row[measure], color=QUIET, linestyle="--", label=row["model"])
        axis.set_title(measure, fontsize=10)
        axis.set_xlabel("after layer (0: embeddings)", fontsize=9)
        axis.set_xticks(sorted({row["layer"] for row in rows} - {None}))
    _add_legend(figure, axes[0])
    return figure


def draw_powers(rows: Rows, by_edges: Rows) -> Figure:
    """Draw squared distances by number of edges, and how well each power fits."""
    figure = new_figure(9.5, 4.2)
    left, right = figure.subplots(1, 2)
    near = [row for row in by_edges if row["edges"] <= MOST_EDGES]
    edges, means = ([row[name] for row in near] for name in ("edges", "mean"))
    quartiles = [[row[f"{side} quartile"] for row in near] for side in ("lower", "upper")]
    left.fill_between(
        edges, *quartiles, color=COLOURS[0], alpha=0.25, label="middle half of the pairs"
    )
    left.plot(edges, means, color=COLOURS[0], marker="o", markersize=5, label="mean")
    left.plot(edges, edges, color=QUIET, linestyle="--", label="as the tree says")
    left.set_title("In the space of the probe for squares", fontsize=10)
    left.set_xlabel("edges between two words", fontsize=9)
    left.set_ylabel("squared distance", fontsize=9)
    left.legend(fontsize=8, frameon=False)
    for number, name in enumerate(dict.fromkeys(row["map"] for row in rows)):
        own = [row for row in rows if row["map"] == name]
        _draw_line(right, own, "power", "R²", number, f"map: {name}")
    right.set_title("Number of edges as a power of the distance", fontsize=10)
    right.set_xlabel("power", fontsize=9)
    right.set_ylabel("R²", fontsize=9)
    right.legend(fontsize=8, frameon=False)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return figure


def draw_relations(rows: Rows) -> Figure:
    """Draw the mean squared distance of each relation, its interval, and its quartiles."""
    figure = new_figure(7.0, 1.4 + ROW * len(rows))
    axis = figure.subplots()
    heights = list(range(len(rows)))
    lower, upper = ([row[f"{side} quartile"] for row in rows] for side in ("lower", "upper"))
    axis.hlines(
        heights, lower, upper, color=QUIET, alpha=0.5, linewidth=5, label="middle half of the pairs"
    )
    means = np.array([row["mean"] for row in rows])
    lows, highs = ([row[f"mean {end}"] for row in rows] for end in ("low", "high"))
    spread = np.clip([means - lows, highs - means], 0, None)
    axis.errorbar(
        means,
        heights,
        xerr=spread,
        fmt="o",
        color=COLOURS[0],
        capsize=2.5,
        markersize=4,
        label="mean, 95 %",
    )
    axis.axvline(1, color=COLOURS[1], linestyle="--", label="as the tree says")
    axis.set_yticks(heights, [f"{row['relation']} ({row['count']})" for row in rows], fontsize=8)
    axis.set_ylim(-0.8, len(rows) - 0.2)
    axis.set_xlabel("squared distance between word and head", fontsize=9)
    _add_legend(figure, axis)
    return figure


def _draw_line(axis: Axes, rows: Rows, across: str, name: str, number: int, label: str) -> None:
    """Draw values with their intervals."""
    values = np.array([row[name] for row in rows])
    ends = [values - [row[f"{name} low"] for row in rows]]
    ends.append([row[f"{name} high"] for row in rows] - values)
    axis.errorbar(
        [row[across] for row in rows],
        values,
        np.clip(ends, 0, None),
        label=label,
        color=COLOURS[number],
        marker=MARKERS[number],
        capsize=2.5,
        markersize=5,
    )


def _add_legend(figure: Figure, axis: Axes) -> None:
    place: Any = "outside lower center"
    figure.legend(*axis.get_legend_handles_labels(), loc=place, ncols=4, fontsize=9, frameon=False)
