"""Figures of sweeps: scores or changes, learning curves, verdicts."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from examples.sweeps.definition import Sweep
from examples.sweeps.rows import SECONDS, Row, Verdict, asked_metric, is_share
from examples.sweeps.store import Results
from jat_graph.looking.viz.figures import PAGE, POINTS

# The colours of Okabe and Ito, told apart under every common colour blindness.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222")
GREY, MARKERS = "#666666", "os^DvpX<>*"
_PAPER = {"linestyle": "", "marker": "o", "mfc": "none", "mec": GREY, "label": "the paper's change"}
COLUMN = 3.3  # inches, the width of one of a page's two columns
_COLUMNS, _ROW = 3, 0.17  # panels beside each other; inches of a row
_LOOKS = {"yes": (COLOURS[2], "o"), "no": (COLOURS[1], "s"), "unknown": (GREY, "D")}  # of verdicts
# Measures of the kind connections, as a reader would say them.
_SAID = {
    r"δ, (.*)": r"linked, where both look at a third (δ): \1",
    r"otherwise, (.*)": r"linked, where not both do: \1",
    r"bridged, (.*)": r"not linked, but both look at a third: \1",
    r"(.*) > (mean.*)": r"linked (above \2): \1",
}


def draw_rows(results: Results, rows: Sequence[Row]) -> Figure:
    """Draw a panel for each measure.

    Where metrics are numbered or bases have lines, scores with standard deviations; else changes
    with 95 % intervals, over a number if variants have one; of pairs alone, if there are some.
    """
    sweep = results.sweep
    numbered = [row for row in rows if row.number is not None and row.variant in sweep.variants]
    shown = numbered or [row for row in rows if sweep.base.line or row.change is not None]
    if sweep.pairs and not numbered:
        shown = [row for row in rows if row.variant not in sweep.variants]
        shown = [row for row in shown if row.metric == asked_metric(sweep, row.task)]
    if not shown:
        raise ValueError(f"a figure of {sweep.name} needs finished runs of two variants, got fewer")
    placed = [row for row in shown if _point(row)[1] is not None]
    if not placed:
        return _draw_changes(sweep, shown)
    panels = defaultdict[str, list[Row]](list)
    for row in placed:
        panels[row.stem if numbered else row.place].append(row)
    tasks = {row.task for row in placed}
    lines = [*dict.fromkeys(_point(row)[0] for row in placed)]  # which look alike in all panels
    same = bool(numbered) and len(tasks) == len(panels)  # measure, at more and more numbers
    figure, axes = _panels(len(panels), sweep.title, sharey=same)
    for axis, (place, group) in zip(axes, panels.items(), strict=True):
        place = place.removeprefix(f"{group[0].task}, ") if len(tasks) == 1 else place
        for pattern, words in _SAID.items():
            place = re.sub(f"^{pattern}$", words, place)
        axis.set_title("\n".join(wrap(place, 34)))
        axis.set_xlabel(number_label(sweep, group[0]) if numbered else sweep.x_label)
        _draw_lines(axis, group, lines, not numbered and not sweep.base.line)
    _add_legend(figure, axes)
    return _sized(figure)


def _point(row: Row) -> tuple[str, Any]:
    """Return the line that a row is on, and where; None where it is nowhere."""
    if row.number is not None:
        return row.variant.name, row.number
    return row.variant.line or "", row.variant.x


def number_label(sweep: Sweep, row: Row) -> str:
    """Return what the number of a row counts."""
    split = re.fullmatch(r"(\D+) \d+", row.split)
    return sweep.x_label or (split[1] if split else re.sub(r"_\d+$", "", row.metric))


def _draw_lines(axis: Axes, rows: Sequence[Row], lines: Sequence[str], changes: bool) -> None:
    """Lines over a number: of changes with intervals, or of scores with standard deviations."""
    for index, name in enumerate(lines):
        own = sorted(((*_point(row), row) for row in rows), key=lambda point: point[1])
        own = [(x, row) for line, x, row in own if line == name]
        found = [(x, *bounds) for x, row in own if (bounds := _bounds(row, changes)) is not None]
        if found:
            x, low, mean, high = np.array(found).T
            axis.errorbar(x, mean, [mean - low, high - mean], label=name, **_style(index))
        printed = [(x, row.paper_change) for x, row in own if row.paper_change is not None]
        if changes and printed:
            axis.plot(*zip(*printed, strict=True), **_PAPER)
    if all(x == int(x) for _, x in map(_point, rows)):
        axis.xaxis.get_major_locator().set_params(integer=True)
    share = "change, points" if changes else "score in percent"
    axis.set_ylabel(share if is_share(rows[0].metric) else rows[0].metric)


def _draw_changes(sweep: Sweep, rows: Sequence[Row]) -> Figure:
    """The change of each variant, one below the other, all of one unit on one scale."""
    scales = defaultdict[str, list[Row]](list)
    for row in rows:
        unit = "share" if is_share(row.metric) else row.place
        scales[SECONDS if row.metric == SECONDS else unit].append(row)
    groups = scales.values()
    counts = [len(group) + len({row.place for row in group if len(group) > 1}) for group in groups]
    height = _ROW * sum(counts) + 0.5 * len(groups) + 0.8
    figure = Figure(figsize=(PAGE, height), layout="constrained")
    figure.suptitle("\n".join(wrap(sweep.title, 80)))
    ratios = {"height_ratios": [count + 2 for count in counts]}
    axes = figure.subplots(len(groups), squeeze=False, gridspec_kw=ratios)[:, 0].tolist()
    for axis, group in zip(axes, groups, strict=True):
        names, last = [], ""
        variants = {row.variant.name for row in group}
        for row in group:
            names += [row.place] * (row.place != last and len(variants) > 1)
            last = row.place
            low, mean, high = _bounds(row, True) or (math.nan,) * 3
            axis.hlines(len(names), low, high, color=COLOURS[0])
            dot: Any = {"marker": "o", "ms": 3.5, "label": "here, with its 95 % interval"}
            axis.plot(mean, len(names), color=COLOURS[0], **dot)
            if row.paper_change is not None:
                axis.plot(row.paper_change, len(names), **_PAPER)
            names.append(f"{row.variant.name}    " if len(variants) > 1 else row.place)
        axis.axvline(0, color=GREY, linewidth=0.8)
        axis.grid(alpha=0.3, axis="x")
        axis.set_yticks(range(len(names)), names)
        axis.tick_params(axis="y", length=0)
        axis.set_ylim(len(names) - 0.5, -0.5)
        unit = "points" if is_share(group[0].metric) else group[0].metric
        unit = "percent of more time" if group[0].metric == SECONDS else unit
        what = variants.pop() if len(variants) == 1 else "change"
        against = "" if sweep.pairs else f" against {sweep.base.name}"
        axis.set_xlabel(f"{what}{against}, {unit}")
    _add_legend(figure, axes)
    return _sized(figure)


def _sized(figure: Figure) -> Figure:
    """Give all letters one size, which fits a page."""
    for axis in figure.axes:
        axis.tick_params(labelsize=POINTS)
    for text in figure.findobj(Text):
        text.set_fontsize(POINTS)
    return figure


def _bounds(row: Row, change: bool) -> tuple[float, float, float] | None:
    """Low end, mean and high end of what is drawn of a row, in its unit; a mean may lie outside."""
    factor = 100.0 if is_share(row.metric) or (change and row.metric == SECONDS) else 1.0
    mean = row.mean if not change else None if row.change is None else row.change.mean
    if mean is None:
        return None
    spread = row.std or 0.0
    low, high = mean - spread, mean + spread
    if change and row.change is not None:
        low, high = row.change.interval or (mean, mean)
    return factor * min(low, mean), factor * mean, factor * max(high, mean)


def draw_curves(results: Results) -> Figure:
    """Draw how scores rose on the way, where that was kept: means, and faint lines of seeds."""
    sweep = results.sweep
    kept = {r.task for r in results.records if any(s.startswith("step ") for s in r.scores)}
    tasks = [task for task in sweep.tasks if task in kept]
    if not tasks:
        raise ValueError(f"sweep {sweep.name} kept no scores of steps on the way")
    figure, axes = _panels(len(tasks), sweep.title)
    for axis, task in zip(axes, tasks, strict=True):
        metric = asked_metric(sweep, task)
        for index, variant in enumerate(sweep.variants):
            curves = [
                {int(s[5:]): 100 * (of[metric] or 0.0) for s, of in r.scores.items() if s != "test"}
                for r in results.of(task, variant.name).values()
            ]
            style = _style(index)
            for seed in curves:
                axis.plot(*zip(*seed.items(), strict=True), c=style["color"], alpha=0.4, lw=0.7)
            if curves:
                means = [fmean(curve[step] for curve in curves) for step in curves[0]]
                axis.plot(list(curves[0]), means, label=variant.name, **style)
        axis.set_title(task)
        axis.set_ylim(0, 103)
        axis.set_xlabel("steps")
        axis.set_ylabel("right answers, %")
    _add_legend(figure, axes)
    return _sized(figure)


def draw_answers(answers: Sequence[tuple[str, Verdict]]) -> Figure:
    """Draw verdicts: the gain of each where 1 is as much as was asked for, with its interval."""
    if not answers:
        raise ValueError("a figure of verdicts needs a sweep that asks a question")
    figure = Figure(figsize=(PAGE, _ROW * len(answers) + 1.0), layout="constrained")
    axis = figure.subplots()
    for y, (_, one) in enumerate(answers):
        colour, marker = _LOOKS[one.said]
        axis.plot(one.gain, y, marker, color=colour, markersize=5, label=one.said)
        if one.interval is not None:
            axis.hlines(y, *one.interval, color=colour)
    axis.axvline(0, color=GREY, linewidth=0.8)
    axis.axvline(1, color=GREY, linewidth=0.8, linestyle="--")
    axis.set_xscale("symlog", linthresh=1, linscale=0.6)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("gain, where 1 is as much as was asked for, with its 95 % interval")
    names = [f"{name}: {one.row.task}, {one.row.variant.name}" for name, one in answers]
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    _add_legend(figure, [axis])
    return _sized(figure)


def _panels(count: int, title: str, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure that belongs to no window, and its panels."""
    columns = min(_COLUMNS, count)
    rows = math.ceil(count / columns)
    width = COLUMN if columns == 1 else PAGE
    size = width, 0.86 * width / columns * rows + 0.7
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle("\n".join(wrap(title, int(15 * width))))
    axes = figure.subplots(rows, columns, squeeze=False, sharey=sharey).flatten()
    for axis in axes:
        axis.grid(alpha=0.3)
    for axis in axes[count:]:
        axis.remove()
    return figure, list(axes[:count])


def _style(place: int) -> dict[str, Any]:
    """How the line at a place of a panel looks, unlike those of other places."""
    colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
    line = "--" if place >= len(COLOURS) else "-"
    return {"color": colour, "marker": marker, "ls": line, "markersize": 3, "linewidth": 1.0}


def _add_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """Put one legend under all panels, if there are names."""
    found = [pair for axis in axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
    named = {name: handle for handle, name in found if name}
    if named:
        index: dict[str, Any] = {"loc": "outside lower center", "frameon": False}
        columns = int(figure.get_figwidth() / max(1.7, 0.6 + 0.06 * max(map(len, named))))
        figure.legend(list(named.values()), list(named), ncols=min(columns, len(named)), **index)
