"""What models of several depths cost, and how often they are right, as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from jat_graph.lab.figure import add_legend, line_style, open_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL = (3.4, 2.7)  # inches
_AROUND = 0.9  # inches of the title and the legend


@dataclass(frozen=True)
class Spent:
    """What a model took, and how often it is right."""

    weights: int  # numbers that are learned
    seconds: float  # of its training
    share: float


Costs: TypeAlias = Mapping[str, Sequence[Spent]]  # by arm, the shallow models first

_AXES = {
    "weights": "numbers that are learned",
    "seconds": "seconds of training, of the fastest seed",
}


def draw_costs(panels: Mapping[str, Costs], title: str) -> Figure:
    """Draw a row for each thing that is measured, over what is learned and the time it takes."""
    columns = len(_AXES)
    size = (_PANEL[0] * columns + 0.6, _PANEL[1] * len(panels) + _AROUND)
    figure, axes = open_figure(columns * len(panels), columns, size)
    figure.suptitle(f"{title}\nLines lead from one layer to more", fontsize=10)
    names = list(dict.fromkeys(name for costs in panels.values() for name in costs))
    wanted = [(what, costs, along) for what, costs in panels.items() for along in _AXES]
    for axis, (what, costs, along) in zip(axes, wanted, strict=True):
        _draw_panel(axis, costs, along, names)
        axis.set_title(what, fontsize=9)
    add_legend(figure, axes, columns=3)
    return figure


def _draw_panel(axis: Axes, costs: Costs, along: str, names: Sequence[str]) -> None:
    from matplotlib.ticker import MaxNLocator

    for name, models in costs.items():
        x = [getattr(model, along) for model in models]
        y = [100 * model.share for model in models]
        axis.plot(x, y, label=name, **line_style(names.index(name)))
    axis.set_xlabel(_AXES[along], fontsize=8)
    axis.set_ylabel("right answers in percent", fontsize=8)
    axis.margins(x=0.1)
    axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.set_ylim(0, 108)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.3)
