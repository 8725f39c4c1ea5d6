"""An experiment as a picture: a panel for each measure, changes or scores with their spread."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from jat_graph.lab.studies.captions import source_line
from jat_graph.lab.studies.panels import Panel, choose_panels
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, told apart under every common colour blindness.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
GREY = "#666666"
MARKERS = "os^Dvp"
PANEL = (3.7, 2.9)  # inches
LETTERS_PER_INCH = 12  # of the title, about
LINE_HEIGHT = 0.24  # inches of an arm that has a line of its own
AROUND_LINES = 0.8  # inches above and below these: the panel's title, and its axis
AROUND_PANELS = 1.0  # inches of the picture's title and its legend
MOST_COLUMNS = 3
ASIDE = 0.06  # how far lines are moved apart, so that their bars do not hide each other
PAPER = "the paper's change"


def can_draw(results: Results, rows: Sequence[Row]) -> bool:
    """Tell whether there is something to draw."""
    return bool(choose_panels(results.grid, rows))


def draw_experiment(results: Results, rows: Sequence[Row]) -> Figure:
    """Draw an experiment.

    Where metrics or arms follow a number (steps, layers, heads, hops), lines over that number; else
    the change of each arm. Bars are 95 % intervals of changes, and standard deviations of scores;
    the paper's changes are hollow.
    """
    panels = choose_panels(results.grid, rows)
    if not panels:
        raise ValueError(f"a picture of {results.grid.name!r} needs finished cells of two arms")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'jat_graph[viz]'") from error
    columns = min(MOST_COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    height = max(map(_height, panels)) * lines + AROUND_PANELS
    figure = Figure(figsize=(PANEL[0] * columns + 0.6, height), layout="constrained")
    width = int(LETTERS_PER_INCH * figure.get_figwidth())
    title = [*wrap(results.grid.title, width), *wrap(source_line(results), width)]
    figure.suptitle("\n".join(title), fontsize=10)
    axes = figure.subplots(lines, columns, squeeze=False).flatten()
    for place, (axis, panel) in enumerate(zip(axes, panels, strict=False)):
        left = panels[place - place % columns]
        named = panel is left or panel.ticks != left.ticks
        alike = next(
            one for one, other in zip(axes, panels, strict=False) if _same_scale(panel, other)
        )
        if alike is not axis:
            axis.sharey(alike)
        _draw_panel(axis, panel, named=named)
    for axis in axes[len(panels) :]:
        axis.remove()
    _add_legend(figure, list(axes[: len(panels)]))
    return figure


def _same_scale(panel: Panel, other: Panel) -> bool:
    """Tell whether two panels have one scale."""
    return panel is other or (panel.measure != "" and panel.measure == other.measure)


def _height(panel: Panel) -> float:
    return AROUND_LINES + LINE_HEIGHT * len(panel.ticks) if panel.ticks else PANEL[1]


def _draw_panel(axis: Axes, panel: Panel, *, named: bool) -> None:
    for number, line in enumerate(panel.lines):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        spread = [line.below, line.above]
        aside = 0.0 if panel.ticks else ASIDE * (number - (len(panel.lines) - 1) / 2)
        axis.errorbar(
            [x + aside for x in line.x],
            line.y,
            xerr=spread if panel.ticks else None,
            yerr=None if panel.ticks else spread,
            label=line.name,
            color=colour,
            marker=marker,
            markersize=4,
            linewidth=1.2,
            linestyle="none" if panel.ticks else "-",
            capsize=2,
        )
    for line in panel.printed:
        axis.plot(
            line.x,
            line.y,
            label=PAPER,
            color=GREY,
            marker="D",
            markersize=4,
            markerfacecolor="none",
            linewidth=1.0,
            linestyle="none" if panel.ticks else ":",
        )
    _label(axis, panel, named=named)


def _label(axis: Axes, panel: Panel, *, named: bool) -> None:
    axis.set_title(panel.title, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
    axis.set_xlabel(panel.x_label, fontsize=8)
    if panel.ticks:
        axis.axvline(0.0, color=GREY, linewidth=0.8)
        axis.set_yticks(range(len(panel.ticks)), panel.ticks if named else [""] * len(panel.ticks))
        axis.set_ylim(len(panel.ticks) - 0.5, -0.5)
        return
    axis.set_ylabel(panel.y_label, fontsize=8)
    axis.set_xticks(sorted({x for line in panel.lines for x in line.x}))
    if panel.of_changes:
        axis.axhline(0.0, color=GREY, linewidth=0.8)


def _add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend under all panels, if there are names."""
    found = [zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes]
    handles = {name: handle for pairs in found for handle, name in pairs}
    handles |= {PAPER: handles.pop(PAPER)} if PAPER in handles else {}  # matplotlib has it first
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=min(4, len(handles)),
            fontsize=8,
            frameon=False,
        )
