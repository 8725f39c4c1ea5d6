"""A picture of one jump head on one sentence: its scores, its graph, its propagated scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jat_graph.checks.numbers import check_integer
from jat_graph.checks.pictures import PICTURE_TOKENS
from jat_graph.directions import named
from jat_graph.inspection.reports import StoneReport
from jat_graph.viz.figures import NO_BREAK, new_figure
from jat_graph.viz.stones import JUMP_COLOUR, SIDE_SIGNS, draw_stones

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from jat_graph.inspection.reports import HeadView

SCORE_COLOURS, GRAPH_COLOURS = "PuOr_r", "Blues"  # in order of brightness to all eyes
INCHES_PER_TOKEN, LEAST_SIDE = 0.2, 2.6  # of a panel
LINE_HEIGHT = 0.18  # inches
MAX_LABEL = 16
MOST_TOKENS = 48  # that a picture shows unless another number is given
MAX_STONES, MAX_SHARES = 6, 3  # names of stones in a line, without and with their shares


def draw_head(view: HeadView, most_tokens: int = MOST_TOKENS) -> Figure:
    """Draw one head: scores, graph and propagated scores as matrices, with the jumps marked.

    Rows are the tokens that look, columns the tokens looked at. Scores before and after share one
    colour scale. A numbered ring is a jump; the list below gives its probabilities and stepping
    stones. A graph of stones is drawn as one: the tokens on both sides, the stones between them,
    and the ways that the jumps take in colour. Of a long text the tokens of the strongest jumps are
    drawn, which the picture then says.

    Args:
        view: What the head did, from :func:`jat_graph.inspection.view_head`.
        most_tokens: Number of tokens to draw at most, from 1 to 200. (default: 48)

    Returns:
        A matplotlib figure that belongs to no window; pass it to :func:`save_figure`.

    Raises:
        ValueError: If the number of tokens is not in its range.
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).

    Reference:
        Zhou et al. 2022, Figure 2 shows links of one sentence in the same way.
    """
    check_integer("most_tokens", most_tokens, least=1, below=PICTURE_TOKENS + 1)
    whole, view = view, view.strongest(most_tokens)
    left_out = len(whole.tokens) - len(view.tokens)
    names = _distinct_names(view, with_positions=left_out > 0)
    legend = _legend_lines(view, names, left_out)
    side = max(LEAST_SIDE, INCHES_PER_TOKEN * len(view.tokens))  # of a panel
    notes = LINE_HEIGHT * (len(legend) + 1)
    figure = new_figure(3 * (side + 1.1), side + 2.3 + notes, heading=_title(view), notes=notes)
    axes = figure.subplots(1, 3)
    _draw_panels(axes, view, names, side)
    _mark_jumps([axis for axis in axes if axis.images], view)
    top = (notes - LINE_HEIGHT / 2) / figure.get_figheight()
    figure.text(0.02, top, "\n".join(legend), fontsize=9, va="top", linespacing=1.35)
    return figure


def _title(view: HeadView) -> str:
    """Name layer, head, threshold and density, or what there is to say of stones."""
    report = view.report
    threshold = "∞" if math.isinf(report.threshold) else f"{report.threshold:.3g}"
    said = [f"ρ = {threshold}, density {report.density:.1%}, mean weight {report.mean_weight:.2f}"]
    if isinstance(report, StoneReport):
        said = [
            f"t = {threshold}, {report.linked:.0%} of the tokens on {report.num_stones} stones, "
            f"{report.median_size:g} on each (median)"
        ]
    for hop in report.strengths or ():
        said.append(f"θ = {', '.join(f'{number:+.3g}' for number in hop)}".replace(" ", NO_BREAK))
    return f"Layer {report.layer}, head {report.head}: threshold {', '.join(said)}"


def _draw_panels(axes: Sequence[Axes], view: HeadView, names: dict[int, str], side: float) -> None:
    """Fill the three panels; the two score panels share limits, so that a change is a change."""
    scores, propagated = view.scores.numpy(), view.propagated.numpy()
    both = np.abs(np.concatenate([scores.ravel(), propagated.ravel()]))
    limit = float(both[np.isfinite(both)].max(initial=0.0)) or 1.0
    weights = np.ma.masked_equal(view.weights.numpy(), 0.0)  # no edge: white
    panels: tuple[tuple[str, np.ndarray, str | Colormap, tuple[float, float], str], ...] = (
        ("Scores before", scores, SCORE_COLOURS, (-limit, limit), "scaled score"),
        ("Graph", weights, graph_colours(), (0.0, weights.max() or 1.0), "share of keys voting"),
        ("Scores after propagation", propagated, SCORE_COLOURS, (-limit, limit), "scaled score"),
    )
    labels = [names[token.index] for token in view.tokens]
    ticks, size = range(len(labels)), 9 if len(labels) <= 16 else 8
    scale = LEAST_SIDE / side  # so that a bar and its distance are as large below every panel
    for axis, (title, values, colours, (low, high), label) in zip(axes, panels, strict=True):
        axis.set_yticks(ticks, labels, fontsize=size)
        if title == "Graph" and isinstance(view.report, StoneReport):
            draw_stones(axis, view.report, view.tokens, names)
            continue
        image = axis.imshow(values, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
        axis.set_title(title, fontsize=10)
        axis.set_xticks(ticks, labels, rotation=90, fontsize=size)
        axis.set_xlabel("token looked at (k)", fontsize=9)
        bar = axis.figure.colorbar(
            image, ax=axis, location="bottom", shrink=0.8, aspect=30 / scale, pad=0.15 * scale
        )
        bar.set_label(label, fontsize=8)
        bar.ax.tick_params(labelsize=8)
    axes[0].set_ylabel("token that looks (i)", fontsize=9)


def graph_colours() -> Colormap:
    """Return blues without the palest ones, so that the weakest edge differs from none."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps[GRAPH_COLOURS](np.linspace(0.2, 1.0, 256)))


def _distinct_names(view: HeadView, with_positions: bool) -> dict[int, str]:
    """Label each position shown and each stone; what is not one word of the text has its number."""
    shown = {token.index: token.text for token in view.tokens}
    stones = [step.token for jump in view.report.jumps for step in jump.stones]
    if isinstance(view.report, StoneReport):
        stones += [stone.token for stone in view.report.stones]
    counts, names = Counter(shown.values()), {}
    for index, text in (shown | {stone.index: stone.text for stone in stones}).items():
        short = text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"
        # A dollar sign would begin mathematics.
        name = named(short.replace("$", r"\$"))
        names[index] = name + f" {index}" * (with_positions or counts[text] != 1)
    return names


def _mark_jumps(axes: Sequence[Axes], view: HeadView) -> None:
    """Ring every jump in all matrices and number it in the second."""
    from matplotlib.patches import Rectangle

    for number, jump in enumerate(view.report.jumps, start=1):
        row, column = view.tokens.index(jump.query), view.tokens.index(jump.key)
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
    """Describe every jump in one line, and say what is not shown."""
    has_stones = isinstance(view.report, StoneReport)
    lines = ["Jumps by gain: attention probability before → after, and the keys that voted"]
    if has_stones:
        lines = ["Jumps by gain: attention before → after, and the stones with their shares of P"]
    if not bool(view.weights.any()):
        lines = ["No pair of shown tokens is joined by this head's graph."]
    most = MAX_SHARES if has_stones else MAX_STONES
    for number, jump in enumerate(view.report.jumps, start=1):
        through = ", ".join(
            names[stone.token.index]
            + (f" {SIDE_SIGNS[stone.side]} ({stone.share:.0%})" if stone.side else "")
            for stone in jump.stones[:most]
        )
        more = [f"{len(jump.stones) - most} more"] * (len(jump.stones) > most)
        more += [f"{jump.hidden_stones} special token"] * bool(jump.hidden_stones)
        over = " and ".join([through, *more] if through else more)
        lines.append(
            f"{number}.  {names[jump.query.index]} → {names[jump.key.index]}:  {jump.before:.1%} → "
            f"{jump.after:.1%} ({jump.gain:+.1%}),  through {over}"
        )
    shown = len(view.tokens)
    said = f"{shown} of {shown + left_out} tokens are shown: those of the strongest jumps."
    return [*lines, *[said] * bool(left_out)]
