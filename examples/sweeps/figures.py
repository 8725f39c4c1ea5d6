"""Figures of sweeps: scores or changes, learning curves, verdicts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby
from statistics import fmean
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from examples.sweeps.definition import Sweep
from examples.sweeps.rows import SECONDS, Row, Verdict, asked_metric, is_share
from examples.sweeps.store import Results

# The colours of Okabe and Ito, told apart under every common colour blindness.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222")
GREY, MARKERS = "#666666", "os^DvpX"
PAPER = "the paper's change"
_PANEL, _COLUMNS = (3.7, 2.9), 3  # inches, panels beside each other


def draw_rows(results: Results, rows: Sequence[Row]) -> Figure:
    """Draw a panel for each measure.

    Where metrics are numbered, as by steps, or variants lie on lines with bases of their own,
    scores with standard deviations; else changes with 95 % intervals, over a number if variants
    have one. What the paper prints is hollow.
    """
    sweep = results.sweep
    numbered = [row for row in rows if row.number is not None]
    shown = numbered or [row for row in rows if sweep.base.line or row.change is not None]
    groups = [list(own) for _, own in groupby(shown, lambda r: r.stem if numbered else r.place)]
    if not groups:
        raise ValueError(f"a figure of {sweep.name} needs finished runs of two variants, got fewer")
    figure, axes = _panels(len(groups), sweep.title)
    names = [variant.name for variant in sweep.variants]
    for axis, group in zip(axes, groups, strict=True):
        axis.set_title(
            "\n".join(wrap(group[0].stem if numbered else group[0].place, 40)), fontsize=9
        )
        if numbered:
            for name in names:
                _scores(
                    axis, name, [(r.number or 0, r) for r in group if r.variant.name == name], names
                )
            axis.set_xlabel(number_label(sweep, group[0]), fontsize=8)
        elif sweep.base.line or any(row.variant.x is not None for row in group):
            _lines(axis, sweep, group)
        else:
            _bars(axis, group)
    _legend(figure, axes)
    return figure


def number_label(sweep: Sweep, row: Row) -> str:
    """Return what the number of a row counts."""
    split = re.fullmatch(r"(\D+) \d+", row.split)
    return sweep.x_label or (split[1] if split else re.sub(r"_\d+$", "", row.metric))


def _factor(metric: str) -> float:
    return 100.0 if is_share(metric) or metric == SECONDS else 1.0


def _scores(axis: Axes, name: str, points: list[tuple[float, Row]], names: Sequence[str]) -> None:
    known = [(x, row) for x, row in sorted(points, key=lambda p: p[0]) if row.mean is not None]
    if not known:
        return
    factor = _factor(known[0][1].metric)
    means = [factor * (row.mean or 0.0) for _, row in known]
    spread = [factor * (row.std or 0.0) for _, row in known]
    axis.errorbar([x for x, _ in known], means, spread, label=name, **_style(names.index(name)))
    share = is_share(known[0][1].metric)
    axis.set_ylabel("score in percent" if share else known[0][1].metric, fontsize=8)


def _lines(axis: Axes, sweep: Sweep, rows: Sequence[Row]) -> None:
    """Changes over a number, or scores where the base has a line of its own."""
    lines = list(dict.fromkeys(row.variant.line or "" for row in rows if row.variant.x is not None))
    for line in lines:
        own = [row for row in rows if (row.variant.line or "") == line]
        points = [(float(row.variant.x or 0.0), row) for row in own if row.variant.x is not None]
        if sweep.base.line:
            _scores(axis, line, points, lines)
            continue
        x, means, ends = [], [], []
        for place, row in points:
            if row.change is not None:
                factor = _factor(row.metric)
                low, high = row.change.interval or (row.change.mean,) * 2
                x.append(place)
                means.append(factor * row.change.mean)
                # a mean may lie outside of percentiles
                ends.append(
                    [
                        factor * max(0.0, row.change.mean - low),
                        factor * max(0.0, high - row.change.mean),
                    ]
                )
        axis.errorbar(
            x,
            means,
            [list(e) for e in zip(*ends, strict=True)] or None,
            label=line,
            **_style(lines.index(line)),
        )
        printed = [
            (place, row.paper_change) for place, row in points if row.paper_change is not None
        ]
        axis.plot(
            *zip(*printed, strict=True), "o", mfc="none", mec=GREY, label=PAPER
        ) if printed else None
        axis.axhline(0, color=GREY, linewidth=0.8)
        axis.set_ylabel(f"change against {sweep.base.name!r}", fontsize=8)
    axis.set_xlabel(sweep.x_label, fontsize=8)


def _bars(axis: Axes, rows: Sequence[Row]) -> None:
    """The change of each variant, one below the other."""
    for y, row in enumerate(rows):
        if row.change is not None:
            factor = _factor(row.metric)
            low, high = row.change.interval or (row.change.mean,) * 2
            axis.hlines(y, factor * low, factor * high, color=COLOURS[0])
            axis.plot(factor * row.change.mean, y, "o", color=COLOURS[0], markersize=4)
        if row.paper_change is not None:
            axis.plot(row.paper_change, y, "o", mfc="none", mec=GREY, label=PAPER)
    axis.axvline(0, color=GREY, linewidth=0.8)
    axis.set_yticks(range(len(rows)), [row.variant.name for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    unit = "percent of more time" if rows[0].metric == SECONDS else "change, 95 % interval"
    axis.set_xlabel(unit, fontsize=8)


def draw_curves(results: Results, rows: Sequence[Row]) -> Figure:
    """Draw how scores rose on the way, where that was kept: means, and faint lines of seeds."""
    sweep, names = results.sweep, [variant.name for variant in results.sweep.variants]
    tasks = [
        task
        for task in sweep.tasks
        if any(
            r.task == task and any(s.startswith("step ") for s in r.scores) for r in results.records
        )
    ]
    if not tasks:
        raise ValueError(f"sweep {sweep.name} kept no scores of steps on the way")
    figure, axes = _panels(len(tasks), sweep.title)
    for axis, task in zip(axes, tasks, strict=True):
        metric = asked_metric(sweep, task)
        for name in names:
            found = results.of(task, name).values()
            curves = [
                {
                    int(s[5:]): 100 * (of[metric] or 0.0)
                    for s, of in r.scores.items()
                    if s.startswith("step ")
                }
                for r in found
            ]
            style = _style(names.index(name))
            for curve in curves:
                axis.plot(
                    list(curve),
                    list(curve.values()),
                    color=style["color"],
                    linewidth=0.7,
                    alpha=0.4,
                )
            if curves:
                means = [fmean(curve[step] for curve in curves) for step in curves[0]]
                axis.plot(list(curves[0]), means, label=name, **style)
        axis.set_title(task, fontsize=9)
        axis.set(ylim=(0, 103))
        axis.set_xlabel("steps", fontsize=8)
        axis.set_ylabel("right answers in percent", fontsize=8)
    _legend(figure, axes)
    return figure


def draw_answers(answers: Sequence[tuple[str, Verdict]]) -> Figure:
    """Draw verdicts: the gain of each where 1 is as much as was asked for, with its interval."""
    if not answers:
        raise ValueError("a figure of verdicts needs a sweep that asks a question")
    figure = Figure(figsize=(8.4, 0.21 * len(answers) + 1.6), layout="constrained")
    axis = figure.subplots()
    looks = {"yes": (COLOURS[2], "o"), "no": (COLOURS[1], "s"), "unknown": (GREY, "D")}
    for y, (_, one) in enumerate(answers):
        colour, marker = looks[one.said]
        axis.plot(one.gain, y, marker, color=colour, markersize=5, label=one.said)
        if one.interval is not None:
            axis.hlines(y, *one.interval, color=colour)
    axis.axvline(0, color=GREY, linewidth=0.8)
    axis.axvline(1, color=GREY, linewidth=0.8, linestyle="--")
    axis.set_xscale("symlog", linthresh=1, linscale=0.6)
    axis.set_xlabel("gain, where 1 is as much as was asked for, with its 95 % interval", fontsize=8)
    names = [f"{name}: {one.row.task}, {one.row.variant.name}" for name, one in answers]
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_ylim(len(names) - 0.5, -0.5)
    _legend(figure, [axis])
    return figure


def _panels(count: int, title: str) -> tuple[Figure, list[Axes]]:
    """A figure that belongs to no window, and its panels."""
    columns = min(_COLUMNS, count)
    rows = math.ceil(count / columns)
    figure = Figure(
        figsize=(_PANEL[0] * columns + 0.6, _PANEL[1] * rows + 0.9), layout="constrained"
    )
    figure.suptitle("\n".join(wrap(title, 44 * columns)), fontsize=10)
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for axis in axes:
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.3)
    for axis in axes[count:]:
        axis.remove()
    return figure, list(axes[:count])


def _style(place: int) -> dict[str, object]:
    """How the line at a place of a panel looks, unlike those of other places."""
    colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
    return {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2}


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend under all panels."""
    handles = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    if handles.pop("", None) is not None or handles:
        names = list(handles)
        figure.legend(
            list(handles.values()),
            names,
            loc="outside lower center",
            ncols=4,
            fontsize=8,
            frameon=False,
        )
