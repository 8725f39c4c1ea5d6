"""Pictures of tables: columns with their intervals over layers, or along named rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from jat_graph.looking.directions import isolated
from jat_graph.looking.probes import frames as pd

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Axes: TypeAlias = "matplotlib.axes.Axes"
Figure: TypeAlias = "matplotlib.figure.Figure"

# Okabe and Ito's colours, which all readers tell apart; what differs has another mark, too.
COLOURS = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #000000 #B8A800".split()
MARKERS = "o^sDvPX*"
QUIET = "#767676"
ROW = 0.22  # inches


def _bars(table: pd.DataFrame, name: str) -> tuple[Any, Any]:  # [N], [2, N]
    """A column, and how far its intervals reach down and up; 0 where there are none."""
    at = table.columns.get_loc(name)  # the ends are in the next two columns
    values, low, high = table.iloc[:, at : at + 3].to_numpy(float).T
    return values, np.clip(np.nan_to_num([values - low, high - values]), 0, None)


def draw_lines(axis: Axes, table: pd.DataFrame, kind: str, across: str, name: str) -> None:
    """Draw a column with its intervals over layers, or what else is across: a line a kind."""
    groups = table.groupby(kind, sort=False)
    for (label, own), colour, marker in zip(groups, COLOURS, MARKERS, strict=False):
        look: Any = {"color": colour, "marker": marker}
        values, ends = _bars(own, name)
        axis.errorbar(own[across], values, ends, label=label, ms=5, capsize=2.5, **look)
    axis.set_xlabel("layer (0: embeddings)" if across == "layer" else across, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if across == "layer":
        axis.set_xticks(sorted(table[across].unique()))


def draw_rows(
    axis: Axes,
    tables: Mapping[str, tuple[pd.DataFrame, str]],
    rows: Sequence[str],
    label: str,
    line: float | None = None,
) -> None:
    """Draw columns with intervals along named rows, and a line where there is nothing to see."""
    for style, (own, (table, name)) in enumerate(tables.items()):
        shift = 0.6 * ((style + 0.5) / len(tables) - 0.5)
        look: Any = {"color": COLOURS[style], "fmt": MARKERS[style], "ms": 4.5, "lw": 1.2}
        values, ends = _bars(table, name)
        indices = np.arange(len(table)) + shift
        axis.errorbar(values, indices, xerr=ends, label=own, capsize=2, **look)
    if line is not None:
        axis.axvline(line, color=QUIET, linestyle=":", linewidth=1.2)
    axis.set_yticks(range(len(rows)), [isolated(row) for row in rows], fontsize=8)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel(label, fontsize=9)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)


def add_legend(figure: Figure, axis: Axes, columns: int = 4) -> Figure:
    """Write below a figure what the lines and points of a panel are, and return it."""
    where: Any = "outside lower center"
    lines, labels = axis.get_legend_handles_labels()
    figure.legend(lines, labels, loc=where, ncols=columns, fontsize=8, frameon=False)
    return figure
