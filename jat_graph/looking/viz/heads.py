"""The picture of a jump head on one text: its scores, its graph or stones, and what it changes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np

from jat_graph.core.numbers import PICTURE_TOKENS, check_integer
from jat_graph.looking.directions import named
from jat_graph.looking.inspection.reports import HeadView, StoneReport
from jat_graph.looking.viz.figures import (
    LINE,
    PAGE,
    POINTS,
    Axes,
    Figure,
    add_bar,
    new_figure,
    short_label,
)
from jat_graph.looking.viz.jumps import FAINT, JUMP_COLOURS, MAX_LABEL, draw_stones

# In order of brightness to all eyes.
SCORE_COLOURS, GRAPH_COLOURS, GAIN_COLOURS = "PuOr_r", "Blues", "RdBu_r"
LEAST_SIDE = 1.8  # inches, of a panel
TOKEN, NAMES, GAP = 0.115, 0.95, 0.12  # inches: of a token's row, of names beside, between panels
BELOW = 1.45  # inches, for names and a colour bar below a panel
MOST_TOKENS = 48  # that a picture shows unless another number is given


def draw_head(view: HeadView, most_tokens: int = MOST_TOKENS) -> Figure:
    """Draw one head: its scores, its graph, and what the graph changes, with the jumps marked.

    Rows are the tokens that look, columns the tokens looked at. The third matrix is the attention
    that a pair gains by propagation, in points, scaled by asinh. A numbered ring is a jump, which
    the legend names. A graph of stones is drawn as one: the tokens on both sides, the stones
    between them, all links faint, and in the colour of each jump the strongest ways that it takes.
    Of a long text the tokens of the strongest jumps are drawn. The caption says how many there are;
    a report has the jumps' probabilities and all stones.

    Args:
        view: What the head did, from :func:`jat_graph.inspection.view_head`.
        most_tokens: Number of tokens to draw at most, from 1 to 200. (default: 48)

    Returns:
        The figure, which :func:`save_figure` writes; its label is its caption.

    Raises:
        ValueError: If the number of tokens is not in its range.
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).

    Reference:
        Zhou et al. 2022, Figure 2 shows links of one sentence in the same way.
    """
    check_integer("most_tokens", most_tokens, least=1, below=PICTURE_TOKENS + 1)
    whole = view
    view = view.strongest(most_tokens)
    left_out = len(whole.tokens) - len(view.tokens)
    names = _distinct_names(view, with_positions=left_out > 0)
    side = max(LEAST_SIDE, TOKEN * len(view.tokens))  # of a panel
    figure, axes, spare = _lay_out(view, side)
    _draw_panels(figure, axes, view, names, side)
    _mark_jumps(figure, axes, spare, view, names)
    figure.set_label(_caption(view, left_out))  # which matplotlib does not draw
    return figure


def _lay_out(view: HeadView, side: float) -> tuple[Figure, list[Axes], Axes | None]:
    """Return a figure, three square panels of so many inches, and a cell left for a legend."""
    # As many beside each other as a page has room for, or else two; lines of a legend stand below.
    columns = 3 if NAMES + 3 * (side + GAP) <= PAGE + 0.01 else 2
    rows = -(-3 // columns)
    width = max(PAGE, NAMES + columns * (side + GAP))
    spare = columns == 2
    lines = -(-(len(view.report.jumps) + 1) // 2)
    below = 0 if spare else LINE * POINTS * 1.4 * (lines + 1)
    heading = f"Layer {view.report.layer}, head {view.report.head}"
    figure = new_figure(width, rows * (side + BELOW) + below, heading=heading)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axis in axes[:3]:
        axis.set_anchor("S")  # beside those which their colour bars push down
    for axis in axes[3:]:
        axis.set_axis_off()
    return figure, axes[:3], axes[3] if spare else None


def _draw_panels(
    figure: Figure, axes: Sequence[Axes], view: HeadView, names: dict[int, str], side: float
) -> None:
    """Fill the three panels, those with two signs around 0."""
    scores = view.scores.numpy()
    gains = 100 * view.gains.numpy()
    limit, most = (float(np.abs(x[np.isfinite(x)]).max(initial=0)) or 1.0 for x in (scores, gains))
    weights = np.ma.masked_equal(view.weights.numpy(), 0.0)  # no edge: white
    heaviest = weights.max() or 1
    from matplotlib import colormaps  # which is there, as a figure is
    from matplotlib.colors import AsinhNorm, ListedColormap, Normalize

    # Without the palest blues, so that the weakest edge differs from none.
    blues = ListedColormap(colormaps[GRAPH_COLOURS](np.linspace(0.2, 1.0, 256)))
    panels: Any = (
        ("Scores", scores, SCORE_COLOURS, Normalize(-limit, limit), "scaled score"),
        ("Graph", weights, blues, Normalize(0, heaviest), "share of keys voting"),
        # Few pairs change by much more than all others, which are to be seen, too.
        ("Attention gained", gains, GAIN_COLOURS, AsinhNorm(1.0, -most, most), "points"),
    )
    labels = [names[token.index] for token in view.tokens]
    ticks = range(len(labels))
    for axis, (title, values, colours, norm, label) in zip(axes, panels, strict=True):
        # Only the first of a row has names beside it; rows of all stand at one height.
        spec = axis.get_subplotspec()
        axis.set_yticks(ticks, labels if spec and spec.is_first_col() else [], fontsize=8)
        if title == "Graph" and isinstance(view.report, StoneReport):
            draw_stones(axis, view.report, view.tokens, names, side)
            continue
        image = axis.imshow(values, cmap=colours, norm=norm, interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.set_xticks(ticks, labels, rotation=90, fontsize=8)
        axis.set_xlabel("token looked at (k)", fontsize=8)
        bar = add_bar(figure, image, axis, label)
    ten = 10 ** math.floor(math.log10(most))
    bar.set_ticks([-ten, 0, ten], labels=[f"{x:g}" for x in (-ten, 0, ten)])
    bar.minorticks_off()
    axes[0].set_ylabel("token that looks (i)", fontsize=8)


def _distinct_names(view: HeadView, with_positions: bool) -> dict[int, str]:
    """Label each position shown and each stone; what is not one word of the text has its number."""
    shown = {token.index: token.text for token in view.tokens}
    stones = [step.token for jump in view.report.jumps for step in jump.stones]
    if isinstance(view.report, StoneReport):
        stones += [stone.token for stone in view.report.stones]
    counts = Counter(shown.values())
    names = {}
    for index, text in (shown | {stone.index: stone.text for stone in stones}).items():
        names[index] = named(short_label(text, MAX_LABEL)) + f" {index}" * (
            with_positions or counts[text] != 1
        )
    return names


def _mark_jumps(
    figure: Figure, axes: Sequence[Axes], spare: Axes | None, view: HeadView, names: dict[int, str]
) -> None:
    """Ring each jump in all matrices, number it in the second, and name it beside its colour."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle

    matrices = [axis for axis in axes if axis.images]
    handles: list[Any] = []
    look: Any = {"color": "white", "fontsize": 6, "fontweight": "bold"}
    look |= {"ha": "center", "va": "center"}
    for number, (jump, colour) in enumerate(zip(view.report.jumps, cycle(JUMP_COLOURS)), start=1):
        row, column = view.tokens.index(jump.query), view.tokens.index(jump.key)
        for axis in matrices:
            corner = (column - 0.5, row - 0.5)
            axis.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=colour, lw=1.5))
        look["bbox"] = {"boxstyle": "round,pad=0.1", "facecolor": colour, "edgecolor": "none"}
        matrices[1].annotate(str(number), (column, row), **look)
        pair = f"{names[jump.query.index]} → {names[jump.key.index]}"
        label = f"{number}: {pair} ({100 * jump.gain:+.1f})"
        handles.append(Patch(fill=False, edgecolor=colour, label=label))
    title = "Jumps, and points gained"
    if isinstance(view.report, StoneReport):
        title += "; wider: a larger share"
        handles.append(Line2D([], [], color=FAINT, label="other links; wider: stronger"))
    look = {"title": title, "title_fontsize": 8, "fontsize": 8, "frameon": False}
    if handles and spare is not None:  # the cell that is left, or below
        spare.legend(handles=handles, loc="upper left", **look)
    elif handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=2, **look)


def _caption(view: HeadView, left_out: int) -> str:
    """Say of a head its numbers, and of its stones or density; and what is not shown."""
    report = view.report
    threshold = "∞" if math.isinf(report.threshold) else f"{report.threshold:.3g}"
    said = [f"ρ = {threshold}, density {report.density:.1%}, mean weight {report.mean_weight:.2f}"]
    if isinstance(report, StoneReport):
        said = [
            f"t = {threshold}, {report.linked:.0%} of the tokens on {report.num_stones} stones, "
            f"{report.median_size:g} on each (median)"
        ]
    for hop in report.strengths or ():
        parts = zip(("queries", "keys", "values"), hop, strict=False)
        said.append(f"θ of {', '.join(f'{name} {number:+.3g}' for name, number in parts)}")
    lines = [f"Layer {report.layer}, head {report.head}: threshold {', '.join(said)}."]
    if not bool(view.weights.any()):
        lines.append("No pair of shown tokens is joined by this head's graph.")
    if left_out:
        shown = f"{len(view.tokens)} of {len(view.tokens) + left_out} tokens are shown"
        lines.append(f"{shown}: those of the strongest jumps.")
    return "\n".join(lines)
