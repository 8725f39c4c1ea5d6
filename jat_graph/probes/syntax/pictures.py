"""Pictures of what probes of syntax found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.viz import new_figure
from jat_graph.viz.figures import COLOURS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE = 0.27  # inches
GREY = "#666666"
MOST_TIMES, DARK_FROM = 4.0, 2.6  # times chance: where colours end, and where they are dark
GRIDS = (("ratio", "times chance"), ("matched", "times matched chance"))


def draw_accuracies(table: pd.DataFrame) -> Figure:
    """Draw how well each task is done, whatever it is told from."""
    tasks = table["task"].unique()
    rows = table["told from"].nunique()
    figure = new_figure(4.6 * len(tasks), 1.3 + LINE * rows)
    axes = figure.subplots(1, len(tasks), squeeze=False)[0]
    for axis, task in zip(axes, tasks, strict=True):
        own = table[table["task"] == task]
        _points(axis, own, "accuracy", "low", "high", 0, 0.0)
        for place, chance in enumerate(own["chance"]):
            axis.plot([chance] * 2, [place - 0.4, place + 0.4], color=GREY, ls=":", lw=1.2)
        _name_rows(axis, own["told from"])
        axis.set_title(task, fontsize=10)
        axis.set_xlabel("accuracy (dotted: chance)", fontsize=9)
        axis.set_xlim(min(0.0, own["low"].min() - 0.02), 1.0)
    return figure


def draw_heads(table: pd.DataFrame) -> Figure:
    """Draw the best head of each relation beside the best offset."""
    from matplotlib.lines import Line2D

    figure = new_figure(7.4, 1.7 + LINE * len(table))
    axis = figure.subplots()
    _points(axis, table, "offset accuracy", "offset low", "offset high", 1, 0.16)
    _points(axis, table, "accuracy", "low", "high", 0, -0.16)
    names = [f"{row.relation}: {row.layer}-{row.head}, {row.way}" for row in table.itertuples()]
    _name_rows(axis, names)
    signed = axis.secondary_yaxis("right")
    signed.set_yticks(range(len(table)), [f"{step:+d}" for step in table["offset"]], fontsize=8)
    signed.set_ylabel("offset", fontsize=9)
    axis.set_xlim(0.0, 1.0)
    axis.set_xlabel("share of words whose head is found", fontsize=9)
    axis.set_title("relation: layer-head, which of the two looks", fontsize=9, loc="left")
    handles = [
        Line2D([], [], color=COLOURS[colour], marker=marker, label=label, linewidth=1.2)
        for colour, marker, label in ((0, "o", "best head"), (5, "^", "best fixed offset"))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    return figure


def draw_ratios(table: pd.DataFrame) -> Figure:
    """Draw how much more often than chance joined pairs are related: all heads, and the best."""
    figure = new_figure(8.6, 1.9 + LINE * 1.25 * len(table))
    axis = figure.subplots()
    series = (
        ("all heads", "ratio"),
        ("all heads, to pairs as far apart", "matched"),
        ("best head", "best ratio"),
        ("best head, to pairs as far apart", "best matched"),
    )
    handles = [
        _points(axis, table, name, f"{name} low", f"{name} high", place, 0.2 * place - 0.3)
        for place, (_, name) in enumerate(series)
    ]
    axis.axvline(1.0, color=GREY, linestyle=":", linewidth=1.2)
    axis.set_xscale("symlog", linthresh=1.0, linscale=0.6)
    _name_rows(axis, [f"{row.related} ({row.layer}-{row.head})" for row in table.itertuples()])
    _plain_ticks(axis)
    axis.set_title("relation (layer-head of the best)", fontsize=9, loc="left")
    axis.set_xlabel("joined pairs so related, times what chance gives (dotted: 1)", fontsize=9)
    figure.legend(
        handles,
        [label for label, _ in series],
        loc="outside lower center",
        ncols=2,
        fontsize=8,
        frameon=False,
    )
    return figure


def draw_head_grids(table: pd.DataFrame, related: Sequence[str]) -> Figure:
    """Draw a grid of layers and heads for each kind: how much more often than chance."""
    from matplotlib.colors import LogNorm

    layers, heads = sorted(table["layer"].unique()), sorted(table["head"].unique())
    width = max(3.2, 0.36 * len(heads) + 0.9)
    height = len(related) * (0.85 + 0.28 * len(layers)) + 0.4
    figure = new_figure(width * len(GRIDS) + 1.2, height)
    axes = figure.subplots(len(related), len(GRIDS), squeeze=False)
    norm = LogNorm(1 / MOST_TIMES, MOST_TIMES)
    for row, name in zip(axes, related, strict=True):
        own = table[table["related"] == name].pivot(index="layer", columns="head")
        for axis, (column, against) in zip(row, GRIDS, strict=True):
            grid = own[column].reindex(index=layers, columns=heads).to_numpy(float)
            values = np.clip(grid, 1 / MOST_TIMES, MOST_TIMES)
            image = axis.imshow(values, cmap="PuOr_r", norm=norm, aspect="auto")
            _write_cells(axis, grid)
            axis.set_xticks(range(len(heads)), heads, fontsize=7)
            axis.set_yticks(range(len(layers)), layers, fontsize=7)
            axis.set_title(f"{name}, {against}", fontsize=9)
            axis.set_ylabel("layer", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("head", fontsize=8)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, label="times chance")
    bar.set_ticks([0.25, 0.5, 1, 2, 4], labels=["¼ or less", "½", "1", "2", "4 or more"])
    bar.ax.minorticks_off()
    return figure


def _write_cells(axis: Axes, grid: Any) -> None:
    """Write the number into each cell, white where it is dark."""
    for (row, column), value in np.ndenumerate(grid):
        if np.isnan(value):
            continue
        dark = not 1 / DARK_FROM < value < DARK_FROM
        text = f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
        colour = "white" if dark else "black"
        axis.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)


def _plain_ticks(axis: Axes) -> None:
    """Write ratios as they are read."""
    top = axis.get_xlim()[1]
    ticks = [tick for tick in (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0) if tick <= top]
    axis.set_xlim(0.0, top)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=8)
    axis.minorticks_off()


def _points(
    axis: Axes, table: pd.DataFrame, name: str, low: str, high: str, style: int, shift: float
) -> Any:
    """Draw a column with its intervals as points along rows."""
    values = table[name].to_numpy(float)
    ends = np.abs(table[[low, high]].to_numpy(float).T - values)
    return axis.errorbar(
        values,
        np.arange(len(values)) + shift,
        xerr=ends,
        fmt="o^sD"[style],
        color=COLOURS[(0, 5, 2, 3)[style]],
        markersize=4.5,
        linewidth=1.2,
        capsize=2,
    )


def _name_rows(axis: Axes, names: Any) -> None:
    """Write a name beside each row, the first above."""
    axis.set_yticks(range(len(names)), list(names), fontsize=8)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", color="#dddddd", linewidth=0.6)
    axis.set_axisbelow(True)
