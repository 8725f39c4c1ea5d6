"""A picture of one jump head on one sentence: its scores, its graph, its propagated scores."""

from __future__ import annotations

import logging
import math
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jat_graph.checks.pictures import check_most_tokens
from jat_graph.directions import named
from jat_graph.files import check_picture, replacing
from jat_graph.inspection.reports import StoneReport
from jat_graph.viz.stones import JUMP_COLOUR, SIDE_SIGNS, draw_stones

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from jat_graph.inspection.reports import HeadView, Jump, SteppingStone

# Both maps keep their order of brightness under every common colour blindness.
SCORE_COLOURS = "PuOr_r"
GRAPH_COLOURS = "Blues"
INCHES_PER_TOKEN, LEAST_SIDE = 0.2, 2.6  # of a panel
LINE_HEIGHT = 0.18  # inches
NO_BREAK = "\u00a0"  # a space that textwrap leaves
LETTERS = 108  # of one point, in an inch of a heading
LINE = 1 / 60  # inches for each point of a heading's size
TITLE = 0.25  # inches, of a panel's title
MAX_LABEL = 16
MOST_TOKENS = 48  # that a picture shows unless told otherwise
MISSING = r"Glyph \d+ .* missing from "  # how matplotlib begins to say it
MAX_STONES, MAX_SHARES = 6, 3  # names of stones in a line, without and with their shares

logger = logging.getLogger(__name__)


def draw_head(view: HeadView, most_tokens: int = MOST_TOKENS) -> Figure:
    """Draw one head: scores, graph and propagated scores as matrices, with the jumps marked.

    Rows are the tokens that look, columns the tokens looked at. Scores before and after share
    one colour scale. A numbered ring is a jump; the list below the matrices gives its
    probabilities and its stepping stones. A graph of stones is drawn as one: the tokens on both
    sides, the stones between them, and the ways that the jumps take in colour. Of a long text
    the tokens of the strongest jumps are drawn, which the picture then says.

    Args:
        view: what the head did, from :func:`jat_graph.inspection.view_head`.
        most_tokens: number of tokens to draw at most, from 1 to 200. (default: 48)

    Shapes:
        - ``view.scores``, ``view.weights``, ``view.propagated``, ``view.gains``: [L, L]

    Returns:
        A matplotlib figure that belongs to no window; pass it to :func:`save_figure`.

    Raises:
        ValueError: if the number of tokens is not in its range.
        ImportError: if matplotlib is missing (``pip install 'jat_graph[viz]'``).

    Reference:
        Zhou et al. 2022, Figure 2 shows links of one sentence in the same way.
    """
    check_most_tokens("most_tokens", most_tokens)
    whole, view = view, view.strongest(most_tokens)
    left_out = len(whole.tokens) - len(view.tokens)
    names = _distinct_names(view, with_positions=left_out > 0)
    legend = _legend_lines(view, names, left_out)
    side = _side(len(view.tokens))
    notes = LINE_HEIGHT * (len(legend) + 1)
    figure = new_figure(
        3 * (side + 1.1), side + 2.3 + notes, heading=_title(view), size=12, notes=notes
    )
    axes = figure.subplots(1, 3)
    _draw_panels(axes, view, names)
    _mark_jumps([axis for axis in axes if axis.images], view)
    top = (notes - LINE_HEIGHT / 2) / figure.get_figheight()
    figure.text(0.02, top, "\n".join(legend), fontsize=9, va="top", linespacing=1.35)
    return figure


def _side(tokens: int) -> float:
    """Return how large a panel is, in inches."""
    return max(LEAST_SIDE, INCHES_PER_TOKEN * tokens)


def save_figure(figure: Figure, path: str | Path) -> Path:
    """Write a figure as its file's name ends, beside its place first and then renamed into it.

    Args:
        figure: the figure.
        path: file to write; must end in ``.png``, ``.svg`` or ``.pdf``.

    Returns:
        The path written.

    Raises:
        ValueError: if the name ends in something else.
        OSError: if the folder is missing or cannot be written; nothing is left behind.

    Reference:
        POSIX ``rename``: readers see the old file or the new one, never half of it.
    """
    path = Path(path)
    check_picture(path)
    with replacing(path) as temporary, _one_line_for_glyphs():
        figure.savefig(temporary, dpi=150, format=path.suffix[1:].lower())
    return path


@contextmanager
def _one_line_for_glyphs() -> Iterator[None]:
    """Say in one line how many letters the font lacks; matplotlib has a warning for each."""
    with warnings.catch_warnings(record=True) as found:
        warnings.filterwarnings("always", message=MISSING)
        yield
    lacking = {str(said.message) for said in found if re.match(MISSING, str(said.message))}
    for said in found:
        if str(said.message) not in lacking:
            warnings.warn_explicit(said.message, said.category, said.filename, said.lineno)
    if lacking:
        logger.warning(
            "%d characters are drawn as boxes, as the font has none: install one that does, such "
            "as Noto Sans CJK, and add it to matplotlib's rcParams['font.family']",
            len(lacking),
        )


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


def _title(view: HeadView) -> str:
    """Name layer, head, threshold and density, or what there is to say of stones."""
    report = view.report
    threshold = "∞" if math.isinf(report.threshold) else f"{report.threshold:.3g}"
    head = f"Layer {report.layer}, head {report.head}: threshold"
    strengths = "".join(
        ", " + f"θ = {', '.join(f'{number:+.3g}' for number in hop)}".replace(" ", NO_BREAK)
        for hop in report.strengths or ()
    )
    if isinstance(report, StoneReport):
        return (
            f"{head} t = {threshold}, {report.linked:.0%} of the tokens on {report.num_stones} "
            f"stones, {report.median_size:g} on each (median){strengths}"
        )
    return (
        f"{head} ρ = {threshold}, density {report.density:.1%}, "
        f"mean weight {report.mean_weight:.2f}{strengths}"
    )


def _draw_panels(axes: Sequence[Axes], view: HeadView, names: dict[int, str]) -> None:
    """Fill the three panels; the two score panels share limits, so that a change is a change."""
    scores, propagated = view.scores.numpy(), view.propagated.numpy()
    limit, labels = _limit(scores, propagated), [names[token.index] for token in view.tokens]
    weights = np.ma.masked_equal(view.weights.numpy(), 0.0)  # no edge: white
    panels: tuple[tuple[str, np.ndarray, str | Colormap, tuple[float, float], str], ...] = (
        ("Scores before", scores, SCORE_COLOURS, (-limit, limit), "scaled score"),
        ("Graph", weights, graph_colours(), (0.0, weights.max() or 1.0), "share of keys voting"),
        ("Scores after propagation", propagated, SCORE_COLOURS, (-limit, limit), "scaled score"),
    )
    for axis, (title, values, colours, (low, high), label) in zip(axes, panels, strict=True):
        if title == "Graph" and isinstance(view.report, StoneReport):
            draw_stones(axis, view.report, view.tokens, names)
            _label_rows(axis, labels)
            continue
        image = axis.imshow(values, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
        axis.set_title(title, fontsize=10)
        _label_tokens(axis, labels)
        _add_colour_bar(axis, image, label, _side(len(labels)))
    axes[0].set_ylabel("token that looks (i)", fontsize=9)


def graph_colours() -> Colormap:
    """Return blues without the palest ones, so that the weakest edge differs from none."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps[GRAPH_COLOURS](np.linspace(0.2, 1.0, 256)))


def _limit(scores: np.ndarray, propagated: np.ndarray) -> float:
    """Return the size of the largest finite score of both panels; 1 where there is none."""
    both = np.concatenate([scores.ravel(), propagated.ravel()])
    finite = np.abs(both[np.isfinite(both)])
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


def _label_tokens(axis: Axes, names: Sequence[str]) -> None:
    """Write the tokens along both sides."""
    _label_rows(axis, names)
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=_font_size(names))
    axis.set_xlabel("token looked at (k)", fontsize=9)


def _label_rows(axis: Axes, names: Sequence[str]) -> None:
    axis.set_yticks(range(len(names)), names, fontsize=_font_size(names))


def _font_size(names: Sequence[str]) -> int:
    return 9 if len(names) <= 16 else 8


def _distinct_names(view: HeadView, with_positions: bool) -> dict[int, str]:
    """Return a label for each position that is shown, or a stone.

    Words that come twice carry their position, all of them where the text has gaps, and stones
    that are not among the tokens shown.
    """
    shown = {token.index: token.text for token in view.tokens}
    stones = [step.token for jump in view.report.jumps for step in jump.stones]
    if isinstance(view.report, StoneReport):
        stones += [stone.token for stone in view.report.stones]
    counts = Counter(shown.values())
    return {
        index: _shorten(text) + f" {index}" * (with_positions or counts[text] != 1)
        for index, text in (shown | {stone.index: stone.text for stone in stones}).items()
    }


def _shorten(token: str) -> str:
    """Cut long tokens and show dollar signs as they are (matplotlib would read mathematics)."""
    short = token if len(token) <= MAX_LABEL else token[: MAX_LABEL - 1] + "…"
    return named(short.replace("$", r"\$"))


def _add_colour_bar(axis: Axes, image: AxesImage, name: str, side: float) -> None:
    """Put a thin bar below the panel, so that the token labels keep their room."""
    scale = LEAST_SIDE / side  # so that a bar and its distance are as large below every panel
    bar = axis.figure.colorbar(
        image, ax=axis, location="bottom", shrink=0.8, aspect=30 / scale, pad=0.15 * scale
    )
    bar.set_label(name, fontsize=8)
    bar.ax.tick_params(labelsize=8)


def _mark_jumps(axes: Sequence[Axes], view: HeadView) -> None:
    """Ring every jump in all matrices and number it in the second."""
    from matplotlib.patches import Rectangle

    place = {token.index: position for position, token in enumerate(view.tokens)}
    for number, jump in enumerate(view.report.jumps, start=1):
        row, column = place[jump.query.index], place[jump.key.index]
        for axis in axes:
            corner = (column - 0.5, row - 0.5)
            axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=JUMP_COLOUR, lw=1.8))
        axes[1].annotate(
            str(number),
            (column, row),
            color="white",
            fontsize=7,
            ha="center",
            va="center",
            fontweight="bold",
            bbox={"boxstyle": "round,pad=0.12", "facecolor": JUMP_COLOUR, "edgecolor": "none"},
        )


def _legend_lines(view: HeadView, names: dict[int, str], left_out: int) -> list[str]:
    """Describe every jump in one line below the matrices, and say what is not shown."""
    jumps, shown = view.report.jumps, len(view.tokens)
    heading = "Jumps by gain: attention probability before → after, and the keys that voted"
    if isinstance(view.report, StoneReport):
        heading = "Jumps by gain: attention before → after, and the stones with their shares of P"
    if not bool(view.weights.any()):
        heading = "No pair of shown tokens is joined by this head's graph."
    lines = [_jump_line(number, jump, names) for number, jump in enumerate(jumps, start=1)]
    said = f"{shown} of {shown + left_out} tokens are shown: those of the strongest jumps."
    return [heading, *lines, *[said] * bool(left_out)]


def _jump_line(number: int, jump: Jump, names: dict[int, str]) -> str:
    """Describe one jump: tokens, probability before and after, its first stepping stones."""
    most = MAX_SHARES if any(stone.share for stone in jump.stones) else MAX_STONES
    stones = ", ".join(_stone_name(stone, names) for stone in jump.stones[:most])
    more = len(jump.stones) - most
    if more > 0:
        stones += f" and {more} more"
    if jump.hidden_stones:
        stones += f"{' and ' if stones else ''}{jump.hidden_stones} special token"
    pair = f"{names[jump.query.index]} → {names[jump.key.index]}"
    return (
        f"{number}.  {pair}:  {jump.before:.1%} → {jump.after:.1%} "
        f"({jump.gain:+.1%}),  through {stones}"
    )


def _stone_name(stone: SteppingStone, names: dict[int, str]) -> str:
    name = names[stone.token.index]
    if stone.side is None or stone.share is None:
        return name
    return f"{name} {SIDE_SIGNS[stone.side]} ({stone.share:.0%})"
