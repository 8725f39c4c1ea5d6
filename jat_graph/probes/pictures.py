"""What pictures of probes share: values with intervals along lines or rows, and legends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from jat_graph.directions import isolated

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Axes: TypeAlias = "matplotlib.axes.Axes"
Figure: TypeAlias = "matplotlib.figure.Figure"

# Okabe and Ito's colours, which all readers tell apart; what differs has another mark, too.
COLOURS = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #000000 #B8A800".split()
MARKERS = "o^sDvPX*"
QUIET = "#767676"
ROW = 0.27  # inches


def _ends(table: pd.DataFrame, name: str) -> Any:  # [2, N]
    """How far the ends of intervals are below and above values, 0 where there are none."""
    start = next(part for part in (f"{name} ", f"{name}_", "") if f"{part}low" in table)
    low, high = (table[f"{start}{end}"].to_numpy(float) for end in ("low", "high"))
    values = table[name].to_numpy(float)
    return np.clip(np.nan_to_num([values - low, high - values]), 0, None)


def draw_layers(
    axis: Axes, table: pd.DataFrame, across: str, name: str, style: int, label: str, line: str = "-"
) -> None:
    """Draw a column with its intervals over layers, or what else is across."""
    look: Any = {"color": COLOURS[style], "marker": MARKERS[style], "ls": line, "ms": 5}
    values = table[name].to_numpy(float)
    axis.errorbar(table[across], values, _ends(table, name), label=label, capsize=2.5, **look)
    axis.set_xlabel("layer (0: embeddings)" if across == "layer" else across, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if across == "layer":
        axis.set_xticks(sorted(table[across].dropna().unique()))


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
        indices, values = np.arange(len(table)) + shift, table[name].to_numpy(float)
        axis.errorbar(values, indices, xerr=_ends(table, name), label=own, capsize=2, **look)
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
