"""Figures that belong to no window, and panels in which a colour says what lets who read what."""

from __future__ import annotations

import logging
import re
import textwrap
import warnings
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from jat_graph.files import check_picture, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which all readers tell apart.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
SEVERAL, NOTHING = "#222222", "#ffffff"  # for what several allow, and none
MAX_GRID = 64  # rows or columns of a panel up to which single pairs are outlined
NO_BREAK = "\u00a0"  # a space that textwrap leaves
LETTERS = 108  # of one point, in an inch of a heading
LINE = 1 / 60  # inches for each point of a heading's size
TITLE = 0.25  # inches, of a panel's title
MISSING = r"Glyph \d+ .* missing from "  # how matplotlib begins to say it

logger = logging.getLogger(__name__)


def new_figure(
    width: float, height: float, *, heading: str = "", size: int = 12, notes: float = 0.0
) -> Figure:
    """Return a figure of so many inches, its heading broken into lines above all panels.

    The heading makes the figure higher; so many inches as notes want are left free at the bottom.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError("pictures need matplotlib: pip install 'jat_graph[viz]'") from error
    lines = textwrap.wrap(heading, int(LETTERS / size * width))
    # The layout leaves no room for titles of panels that keep their shape.
    above = LINE * size * (len(lines) + 0.5) + TITLE if lines else 0.0
    height += above
    engine = ConstrainedLayoutEngine(rect=(0, notes / height, 1, 1 - (notes + above) / height))
    figure = Figure(figsize=(width, height), layout=engine)
    if lines:
        text = "\n".join(lines).replace(NO_BREAK, " ")
        title = figure.suptitle(text, y=1 - LINE * size / 4 / height, fontsize=size)
        title.set_in_layout(False)  # it has its place
    return figure


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure as its file's name ends, first beside it and then renamed.

    Args:
        figure: The figure.
        path: File to write; must end in ``.png``, ``.svg`` or ``.pdf``.

    Returns:
        The path written.

    Raises:
        ValueError: If the name ends in something else.
        OSError: If the folder is missing or cannot be written; nothing is left behind.
    """
    path = Path(path)
    check_picture(path)
    with warnings.catch_warnings(record=True) as found, replacing(path) as temporary:
        warnings.filterwarnings("always", message=MISSING)
        figure.savefig(temporary, dpi=150, format=path.suffix[1:].lower())
    lacking = {str(own.message) for own in found if re.match(MISSING, str(own.message))}
    for own in found:
        if str(own.message) not in lacking:
            warnings.warn_explicit(own.message, own.category, own.filename, own.lineno)
    if lacking:  # one line, where matplotlib has a warning for each
        logger.warning(
            "%d characters are drawn as boxes, as the font has none: install one that does, such "
            "as Noto Sans CJK, and add it to matplotlib's rcParams['font.family']",
            len(lacking),
        )
    return path


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
