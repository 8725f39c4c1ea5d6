"""What pictures of results have in common: panels, and lines that can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jat_graph.viz.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, told apart under every common colour blindness.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#222222")
GREY = "#666666"
MARKERS = "os^DvpX"


def open_figure(count: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """A figure of so many inches that belongs to no window, and its panels."""
    figure = new_figure(*size)
    axes = figure.subplots(-(-count // columns), columns, squeeze=False).flatten()
    for axis in axes[count:]:
        axis.remove()
    return figure, list(axes[:count])


def line_style(place: int) -> dict[str, Any]:
    """How the line at a place of a panel looks, unlike those of other places."""
    colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
    return {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.2}


def add_legend(figure: Figure, axes: Sequence[Axes], columns: int, last: str = "") -> None:
    """Put one legend under all panels, if there are names, with one of them at its end."""
    found = [zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes]
    handles = {name: handle for pairs in found for handle, name in pairs}
    handles |= {last: handles.pop(last)} if last in handles else {}
    if handles:
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside lower center",
            ncols=min(columns, len(handles)),
            fontsize=8,
            frameon=False,
        )
