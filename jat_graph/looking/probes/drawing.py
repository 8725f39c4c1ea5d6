"""Pictures of tables: columns with their intervals over layers, or along named rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jat_graph.looking.directions import isolated
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.viz.figures import COLOURS, PAGE, Axes, Figure, new_figure

MARKERS = "o^sDvPX"  # what differs has another mark, too
QUIET = "#767676"


def _bars(table: pd.DataFrame, name: str) -> tuple[Any, Any]:  # [N], [2, N]
    """A column, and how far its intervals reach down and up; 0 where there are none."""
    at = table.columns.get_loc(name)  # the ends, if there are some, are in the next two columns
    has_ends = len(table.columns) > at + 2 and table.columns[at + 1].endswith("low")
    numbers = table.iloc[:, [at, at + 1, at + 2] if has_ends else [at] * 3]
    values, low, high = numbers.to_numpy(float).T
    return values, np.clip(np.nan_to_num([values - low, high - values]), 0, None)


def draw_lines(axis: Axes, table: pd.DataFrame, name: str) -> None:
    """Draw a column with its intervals over layers, a line for each model."""
    groups = table.groupby("model", sort=False)
    for (label, own), colour, marker in zip(groups, COLOURS, MARKERS, strict=False):
        look: Any = {"color": colour, "marker": marker}
        values, ends = _bars(own, name)
        axis.errorbar(own["layer"], values, ends, label=label, ms=5, capsize=2.5, **look)
    axis.set_xlabel("layer (0: embeddings)", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xticks(sorted(table["layer"].unique()))


def draw_rows(
    series: Mapping[str, tuple[pd.DataFrame, str]],
    index: Sequence[str],
    label: str,
    line: float | None = None,
) -> Figure:
    """Draw columns of tables with intervals along the rows that an index names.

    A dotted line stands where there is nothing to see.
    """
    rows = next(iter(series.values()))[0][list(index)].to_dict("records")
    figure = new_figure(PAGE, 1.3 + 0.08 * len(rows) * (1 + len(series)))
    axis = figure.subplots()
    for style, (own, (table, name)) in enumerate(series.items()):
        shift = 0.6 * ((style + 0.5) / len(series) - 0.5)
        look: Any = {"color": COLOURS[style % len(COLOURS)], "ls": "", "ms": 4.5, "lw": 1.2}
        look["marker"] = MARKERS[(style + style // len(COLOURS)) % len(MARKERS)]
        values, ends = _bars(table, name)
        axis.errorbar(values, np.arange(len(rows)) + shift, xerr=ends, label=own, capsize=2, **look)
    if line is not None:
        axis.axvline(line, color=QUIET, linestyle=":", linewidth=1.2)
    names = []
    for row in rows:
        cells = [f"{key} {x}" if isinstance(x, int) else str(x) for key, x in row.items()]
        names.append(isolated(", ".join(cells)))
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel(label, fontsize=9)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)
    return add_legend(figure, axis) if len(series) > 1 else figure


def add_legend(figure: Figure, axis: Axes) -> Figure:
    """Write below a figure what the lines and points of a panel are, and return it."""
    where: Any = "outside lower center"
    lines, labels = axis.get_legend_handles_labels()
    figure.legend(lines, labels, loc=where, ncols=2, fontsize=8, frameon=False)
    return figure
