"""An experiment as a picture: a panel for each measure, changes or scores with their spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING

from jat_graph.lab.figure import GREY, add_legend, line_style, open_figure
from jat_graph.lab.studies.captions import source_line
from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.results import Results
from jat_graph.lab.studies.rows import Row, group_rows, number_label
from jat_graph.lab.tables import SECONDS, is_share

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    columns = min(MOST_COLUMNS, len(panels))
    lines = -(-len(panels) // columns)
    height = max(map(_height, panels)) * lines + AROUND_PANELS
    figure, axes = open_figure(len(panels), columns, (PANEL[0] * columns + 0.6, height))
    width = int(LETTERS_PER_INCH * figure.get_figwidth())
    title = [*wrap(results.grid.title, width), *wrap(source_line(results), width)]
    figure.suptitle("\n".join(title), fontsize=10)
    for place, (axis, panel) in enumerate(zip(axes, panels, strict=True)):
        left = panels[place - place % columns]
        named = panel is left or panel.ticks != left.ticks
        alike = next(
            one for one, other in zip(axes, panels, strict=True) if _same_scale(panel, other)
        )
        if alike is not axis:
            axis.sharey(alike)
        _draw_panel(axis, panel, names, named=named)
    # as many columns as the panels are wide enough for; matplotlib has the paper's changes first
    add_legend(figure, axes, columns=min(4, 1 + min(columns, len(panels))), last=PAPER)
    return figure


def _same_scale(panel: Panel, other: Panel) -> bool:
    """Tell whether two panels have one scale."""
    return panel is other or (panel.measure != "" and panel.measure == other.measure)


def _height(panel: Panel) -> float:
    return AROUND_LINES + LINE_HEIGHT * len(panel.ticks) if panel.ticks else PANEL[1]


def _draw_panel(axis: Axes, panel: Panel, names: Sequence[str], *, named: bool) -> None:
    for number, line in enumerate(panel.lines):
        spread = [line.below, line.above]
        aside = 0.0 if panel.ticks else ASIDE * (number - (len(panel.lines) - 1) / 2)
        axis.errorbar(
            [x + aside for x in line.x],
            line.y,
            xerr=spread if panel.ticks else None,
            yerr=None if panel.ticks else spread,
            label=line.name,
            **line_style(names.index(line.name)),
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


@dataclass(frozen=True)
class Line:
    """Points that belong together, with bars."""

    name: str  # in the legend
    x: list[float]
    y: list[float]
    below: list[float]  # how far the bar goes down, or left, from each
    above: list[float]  # how far up, or right


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: list[Line]  # what was found
    printed: list[Line]  # the paper's, without bars
    ticks: tuple[str, ...] = ()  # names of lines of text, where each arm has its own
    of_changes: bool = True  # whether 0 is the base
    measure: str = ""  # what several panels show of other tasks, on one scale


def choose_panels(grid: Grid, rows: Sequence[Row]) -> list[Panel]:
    """Choose how an experiment is drawn."""
    if any(row.number is not None for row in rows):
        numbered = [row for row in rows if row.number is not None]
        return [
            _numbered_panel(grid, group) for group in group_rows(numbered, lambda row: row.stem)
        ]
    if grid.base.line is not None:
        return [_scores_panel(grid, group) for group in group_rows(rows, lambda row: row.place)]
    changed = [row for row in rows if row.change is not None]
    if any(row.arm.x is not None for row in rows):
        changed = [row for row in changed if row.arm.x is not None]
        return [_line_panel(grid, group) for group in group_rows(changed, lambda row: row.place)]
    return [_arms_panel(grid, group) for group in group_rows(changed, lambda row: row.place)]


def _numbered_panel(grid: Grid, rows: Sequence[Row]) -> Panel:
    lines = [
        _scores(group[0].arm.name, [(float(row.number or 0), row) for row in group])
        for group in group_rows(rows, lambda row: row.arm.name)
    ]
    first = rows[0]
    label, measure = number_label(grid, first), replace(first, task="").stem
    unit = _unit(first)
    return Panel(first.stem, label, unit, lines, [], of_changes=False, measure=measure)


def _scores_panel(grid: Grid, rows: Sequence[Row]) -> Panel:
    placed = [row for row in rows if row.arm.x is not None and row.arm.line is not None]
    lines = [
        _scores(group[0].arm.line or "", [(row.arm.x or 0.0, row) for row in group])
        for group in group_rows(placed, lambda row: row.arm.line or "")
    ]
    title = rows[0].place
    return Panel(title, grid.x_label, _unit(rows[0]), lines, [], of_changes=False)


def _line_panel(grid: Grid, rows: Sequence[Row]) -> Panel:
    lines, printed = [], []
    for group in group_rows(rows, lambda row: row.arm.line or ""):
        points = [(row.arm.x or 0.0, row) for row in group]
        lines.append(_changes(group[0].arm.line or "", points))
        shown = [(x, row.paper_change) for x, row in points if row.paper_change is not None]
        printed += [_paper(shown)] if shown else []
    label = _change_label(grid, rows[0])
    return Panel(rows[0].place, grid.x_label, label, lines, printed)


def _arms_panel(grid: Grid, rows: Sequence[Row]) -> Panel:
    found = _changes("", list(enumerate(rows)))
    line = Line("here, with its 95 % interval", found.y, found.x, found.below, found.above)
    shown = [(y, row.paper_change) for y, row in enumerate(rows) if row.paper_change is not None]
    printed = [_paper(shown)] if shown else []
    printed = [Line(one.name, one.y, one.x, [], []) for one in printed]
    ticks = tuple(row.arm.name for row in rows)
    return Panel(rows[0].place, _change_label(grid, rows[0]), "", [line], printed, ticks)


def _scores(name: str, points: list[tuple[float, Row]]) -> Line:
    """Return scores with standard deviations; of shares up to 100 % at most."""
    factor, most = (100.0, 100.0) if is_share(points[0][1].metric) else (1.0, math.inf)
    known = [(x, row.summary) for x, row in sorted(points, key=lambda point: point[0])]
    shown = [(x, summary) for x, summary in known if summary is not None]
    spread = [factor * (summary.std or 0.0) for _, summary in shown]
    y = [factor * summary.mean for _, summary in shown]
    above = [min(size, most - at) for at, size in zip(y, spread, strict=True)]
    return Line(name, [x for x, _ in shown], y, spread, above)


def _changes(name: str, points: Sequence[tuple[float, Row]]) -> Line:
    """Return changes with their intervals."""
    line = Line(name, [], [], [], [])
    for x, row in points:
        if row.change is None:
            continue
        mean, interval = row.change.mean, row.change.interval
        factor = 100.0 if is_share(row.metric) or row.metric == SECONDS else 1.0
        line.x.append(x)
        line.y.append(factor * mean)
        # a mean may lie outside of percentiles
        line.below.append(factor * max(0.0, mean - interval.low) if interval else 0.0)
        line.above.append(factor * max(0.0, interval.high - mean) if interval else 0.0)
    return line


def _paper(points: Sequence[tuple[float, float]]) -> Line:
    return Line("", [float(x) for x, _ in points], [y for _, y in points], [], [])


def _unit(row: Row) -> str:
    return "score in percent" if is_share(row.metric) else row.metric


def _change_label(grid: Grid, row: Row) -> str:
    against = f"change against {grid.base.name!r}"
    return "percent of more time" if row.metric == SECONDS else against
