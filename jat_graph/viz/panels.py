"""One panel of a picture: who reads what, in the colour of what lets it."""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, which all readers tell apart; black stands for what several allow.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
SEVERAL, NOTHING = "#222222", "#ffffff"
MAX_GRID = 64  # rows or columns up to which single pairs are outlined


class Panel(NamedTuple):
    """What a panel shows; a colour is named below it if there is another."""

    title: str
    colours: Tensor  # 0 for none, a name's number from 1, one more for several, [rows, columns]
    names: tuple[str, ...]  # of the colours
    columns: str = "key"
    rows: str = "query"


def colours_of(counts: Tensor) -> Tensor:  # how many ways each name has, [names, *] -> [*]
    """Return 0 where there is no way, a name's number from 1, and one more for several ways."""
    number = torch.arange(1, len(counts) + 1)[:, None, None]
    alone = (counts.bool() * number).sum(0)
    return torch.where(counts.sum(0) > 1, len(counts) + 1, alone)


def draw_panel(axis: Axes, panel: Panel) -> None:
    """Fill one panel: the pairs, a title, and the names of colours below."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    named = [*islice(cycle(COLOURS), len(panel.names)), SEVERAL]
    rows, columns = panel.colours.shape
    axis.imshow(
        panel.colours.numpy(),
        cmap=ListedColormap([NOTHING, *named]),
        vmin=-0.5,
        vmax=len(named) + 0.5,
        interpolation="nearest",
        extent=(0, columns, rows, 0),
        aspect="auto",
    )
    axis.set_box_aspect(1)
    for side, size in ((axis.yaxis, rows), (axis.xaxis, columns)):
        if size <= MAX_GRID:
            side.set_ticks(range(size + 1), minor=True)
            side.grid(which="minor", color="#dddddd", linewidth=0.4)
    axis.tick_params(which="minor", length=0)
    axis.tick_params(labelsize=7)
    axis.set_title(panel.title, fontsize=9)
    axis.set_xlabel(panel.columns, fontsize=8)
    axis.set_ylabel(panel.rows, fontsize=8)
    if len(panel.names) > 1:
        more = ["several"] * bool((panel.colours > len(panel.names)).any())
        axis.legend(
            handles=[
                Patch(facecolor=colour, edgecolor="#888888", label=name)
                for colour, name in zip(named, (*panel.names, *more), strict=False)
            ],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncols=2,
            fontsize=7,
            frameon=False,
        )
