"""Learning curves as a picture: a panel for each thing that is measured, a line for each model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from jat_graph.lab.figure import GREY, add_legend, line_style, open_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = (3.0, 2.5)  # inches
_AROUND = 0.9  # inches of the title and the legend
_MOST_COLUMNS = 3


@dataclass(frozen=True)
class Curves:
    """How often models are right about one thing, after how many steps."""

    # Steps and shares of each seed, by the model's name.
    lines: Mapping[str, Sequence[Sequence[tuple[int, float]]]]
    chance: float  # the share that is right by chance


def draw_curves(panels: Mapping[str, Curves], title: str) -> Figure:
    """Draw means over seeds, faint lines for the seeds, and a dotted one for chance, by panels."""
    columns = min(_MOST_COLUMNS, len(panels))
    height = _PANEL[1] * -(-len(panels) // columns) + _AROUND
    figure, axes = open_figure(len(panels), columns, (_PANEL[0] * columns + 0.6, height))
    figure.suptitle(title, fontsize=10)
    names = list(dict.fromkeys(name for curves in panels.values() for name in curves.lines))
    for axis, (what, curves) in zip(axes, panels.items(), strict=True):
        _draw_panel(axis, what, curves, names)
    add_legend(figure, axes, columns=columns + 1)
    return figure


def _draw_panel(axis: Axes, what: str, curves: Curves, names: Sequence[str]) -> None:
    for name, seeds in curves.lines.items():
        style = line_style(names.index(name))
        steps = [step for step, _ in seeds[0]]
        shares = [[100 * share for _, share in points] for points in seeds]
        for of_seed in shares:
            axis.plot(steps, of_seed, color=style["color"], linewidth=0.7, alpha=0.4)
        axis.plot(steps, [fmean(at) for at in zip(*shares, strict=True)], label=name, **style)
    axis.axhline(
        100 * curves.chance, label="the commonest value", color=GREY, linestyle=":", linewidth=1.0
    )
    axis.set_title(what, fontsize=9)
    axis.set_xlabel("steps", fontsize=8)
    axis.set_ylabel("right answers in percent", fontsize=8)
    axis.set_ylim(0, 103)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
