"""What the panels of an experiment's picture show: plain numbers, ready to be drawn."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jat_graph.lab.studies.grid import Grid
from jat_graph.lab.studies.rows import Row
from jat_graph.lab.tables import SECONDS, is_share

_NUMBERED_SPLIT = r"(\D+) (\d+)"


@dataclass(frozen=True)
class Line:
    """Points that belong together, with bars.

    Args:
        name: What the legend calls them.
        x: Where they are.
        y: Likewise.
        below: How far the bar goes down, or left, from each.
        above: How far up, or right.
    """

    name: str
    x: list[float]
    y: list[float]
    below: list[float]
    above: list[float]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Args:
        title: What is measured.
        x_label: What the horizontal axis is.
        y_label: What the vertical axis is.
        lines: What was found.
        printed: The paper's, without bars; of an empty list it has none.
        ticks: Names of lines of text, where each arm has its own; else nothing.
        of_changes: Whether 0 is the base.
        measure: What several panels show of other tasks, on one scale; empty for one of its own.
    """

    title: str
    x_label: str
    y_label: str
    lines: list[Line]
    printed: list[Line]
    ticks: tuple[str, ...] = ()
    of_changes: bool = True
    measure: str = ""


def choose_panels(grid: Grid, rows: Sequence[Row]) -> list[Panel]:
    """Choose how an experiment is drawn."""
    if any(number_of(row) is not None for row in rows):
        numbered = [row for row in rows if number_of(row) is not None]
        return [_numbered_panel(grid, group) for group in group_rows(numbered, stem_name)]
    if grid.base.line is not None:
        return [_scores_panel(grid, group) for group in group_rows(rows, place_name)]
    changed = [row for row in rows if row.change is not None]
    if any(row.arm.x is not None for row in rows):
        changed = [row for row in changed if row.arm.x is not None]
        return [_line_panel(grid, group) for group in group_rows(changed, place_name)]
    return [_arms_panel(grid, group) for group in group_rows(changed, place_name)]


def place_name(row: Row) -> str:
    """Return what a row measures."""
    return ", ".join(part for part in (row.task, row.split, row.metric) if part)


def group_rows(rows: Sequence[Row], key: Callable[[Row], str]) -> list[list[Row]]:
    """Put rows together that share a name."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def number_of(row: Row) -> int | None:
    """Return the number that a metric ends with, or a dev set."""
    split = re.fullmatch(_NUMBERED_SPLIT, row.split)
    found = re.fullmatch(r".*_(\d+)", row.metric)
    return int(split[2]) if split else int(found[1]) if found else None


def stem_name(row: Row) -> str:
    """Return what a numbered row measures, without what is numbered."""
    split = "" if re.fullmatch(_NUMBERED_SPLIT, row.split) else row.split
    return ", ".join(part for part in (row.task, split, re.sub(r"_\d+$", "", row.metric)) if part)


def number_label(grid: Grid, row: Row) -> str:
    """Return what the number of a row counts."""
    split = re.fullmatch(_NUMBERED_SPLIT, row.split)
    return grid.x_label or (split[1] if split else re.sub(r"_\d+$", "", row.metric))


def _numbered_panel(grid: Grid, rows: Sequence[Row]) -> Panel:
    lines = [
        _scores(group[0].arm.name, [(float(number_of(row) or 0), row) for row in group])
        for group in group_rows(rows, lambda row: row.arm.name)
    ]
    first = rows[0]
    label, measure = number_label(grid, first), stem_name(replace(first, task=""))
    unit = _unit(first)
    return Panel(stem_name(first), label, unit, lines, [], of_changes=False, measure=measure)


def _scores_panel(grid: Grid, rows: Sequence[Row]) -> Panel:
    placed = [row for row in rows if row.arm.x is not None and row.arm.line is not None]
    lines = [
        _scores(group[0].arm.line or "", [(row.arm.x or 0.0, row) for row in group])
        for group in group_rows(placed, lambda row: row.arm.line or "")
    ]
    title = place_name(rows[0])
    return Panel(title, grid.x_label, _unit(rows[0]), lines, [], of_changes=False)


def _line_panel(grid: Grid, rows: Sequence[Row]) -> Panel:
    lines, printed = [], []
    for group in group_rows(rows, lambda row: row.arm.line or ""):
        points = [(row.arm.x or 0.0, row) for row in group]
        lines.append(_changes(group[0].arm.line or "", points))
        shown = [(x, row.paper_change) for x, row in points if row.paper_change is not None]
        printed += [_paper(shown)] if shown else []
    label = _change_label(grid, rows[0])
    return Panel(place_name(rows[0]), grid.x_label, label, lines, printed)


def _arms_panel(grid: Grid, rows: Sequence[Row]) -> Panel:
    found = _changes("", list(enumerate(rows)))
    line = Line("here, with its 95 % interval", found.y, found.x, found.below, found.above)
    shown = [(y, row.paper_change) for y, row in enumerate(rows) if row.paper_change is not None]
    printed = [_paper(shown)] if shown else []
    printed = [Line(one.name, one.y, one.x, [], []) for one in printed]
    ticks = tuple(row.arm.name for row in rows)
    return Panel(place_name(rows[0]), _change_label(grid, rows[0]), "", [line], printed, ticks)


def _scores(name: str, points: list[tuple[float, Row]]) -> Line:
    """Return scores with standard deviations."""
    factor = 100.0 if is_share(points[0][1].metric) else 1.0
    known = [(x, row.summary) for x, row in sorted(points, key=lambda point: point[0])]
    shown = [(x, summary) for x, summary in known if summary is not None]
    spread = [factor * (summary.std or 0.0) for _, summary in shown]
    y = [factor * summary.mean for _, summary in shown]
    return Line(name, [x for x, _ in shown], y, spread, spread)


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
