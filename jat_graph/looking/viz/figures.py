"""Figures that belong to no window, as wide as a page, and files of them."""

from __future__ import annotations

import logging
import re
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from jat_graph.core.extras import import_extra
from jat_graph.core.files import check_picture, replacing

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

# By name, as only the extra "viz" brings them.
Axes: TypeAlias = "matplotlib.axes.Axes"
Figure: TypeAlias = "matplotlib.figure.Figure"

PAGE = 6.8  # inches, the width of a page
POINTS = 8  # of letters
FONTS = {"pdf.fonttype": 42, "svg.fonttype": "none"}  # text stays text, which editors can change
DPI = 200

# Okabe and Ito's colours, which all readers tell apart.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
LETTERS = 108  # of one point, in an inch of a heading
LINE = 1 / 60  # inches for each point of a heading's size
TITLE = 0.25  # inches, of a panel's title
MISSING = r"Glyph \d+ .* missing from "  # how matplotlib begins to say it

logger = logging.getLogger(__name__)


def add_bar(figure: Figure, image: Any, axes: Any, label: str, **look: Any) -> Any:
    """Draw the scale of some colours below panels, and return its bar."""
    given: Any = {"location": "bottom", "shrink": 0.8, "aspect": 25, "pad": 0.03} | look
    bar = figure.colorbar(image, ax=axes, **given)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return bar


def new_figure(width: float, height: float, *, heading: str = "") -> Figure:
    """Return a figure of so many inches, its heading broken into lines above all panels."""
    engines, figures = (import_extra(f"matplotlib.{n}", "viz") for n in ("layout_engine", "figure"))
    size = 10  # of letters, in points
    lines = textwrap.wrap(heading, int(LETTERS / size * width))
    # The layout leaves no room for titles of panels that keep their shape.
    above = LINE * size * (len(lines) + 0.5) + TITLE if lines else 0.0
    height += above
    engine = engines.ConstrainedLayoutEngine(rect=(0, 0, 1, 1 - above / height))
    figure: Figure = figures.Figure(figsize=(width, height), layout=engine)
    if lines:
        title = figure.suptitle("\n".join(lines), y=1 - LINE * size / 4 / height, fontsize=size)
        title.set_in_layout(False)  # it has its place
    return figure


def short_label(text: str, most: int) -> str:
    """Cut a long text, and let matplotlib read no mathematics in it."""
    short = text if len(text) <= most else text[: most - 1] + "…"
    return short.replace("$", r"\$")


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure as its file's name ends, first beside it and then renamed.

    Text in an SVG or PDF stays text, in fonts that an editor can change.

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
    rc_context = import_extra("matplotlib", "viz").rc_context
    with warnings.catch_warnings(record=True) as found, replacing(path) as temporary:
        warnings.filterwarnings("always", message=MISSING)
        with rc_context(FONTS):
            figure.savefig(temporary, dpi=DPI, format=path.suffix[1:].lower())
    lacking = {str(own.message) for own in found if re.match(MISSING, str(own.message))}
    for own in found:
        if str(own.message) not in lacking:
            warnings.warn_explicit(own.message, own.category, own.filename, own.lineno)
    if lacking:  # one line, where matplotlib has a warning for each
        logger.warning(
            "%d characters are drawn as boxes, because the font lacks them: install another, such "
            "as Noto Sans CJK, and add it to matplotlib's rcParams['font.family']",
            len(lacking),
        )
    return path
