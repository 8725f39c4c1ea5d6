"""Pictures of jump heads on one text: one with its scores or stones, or the graphs of many."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch.nn.functional as F

from jat_graph.checks.numbers import PICTURE_TOKENS, check_integer
from jat_graph.directions import named
from jat_graph.inspection.reports import StoneReport
from jat_graph.viz.figures import NO_BREAK, new_figure, short_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from jat_graph.inspection import Jump, Stone, StoneReport, Token
    from jat_graph.inspection.reports import GraphView, HeadView


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
        names[index] = named(short_label(text, MAX_LABEL)) + f" {index}" * (
            with_positions or counts[text] != 1
        )
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


JUMP_COLOUR = "#d81b60"
SIDE_COLOURS = {1: "#0072b2", -1: "#e69f00"}  # of stones of high and of low scores
SIDE_SIGNS = {1: "+", -1: "−"}
LEAST_STONES, MOST_STONES = 8, 24  # that are drawn; between, as many as tokens

Steps: TypeAlias = "defaultdict[tuple[int, int], list[tuple[Jump, float]]]"  # by position and side


def draw_stones(
    axis: Axes, report: StoneReport, tokens: tuple[Token, ...], names: Mapping[int, str]
) -> None:
    """Draw who stands on the stones that most walks go over, and how the jumps go over them."""
    rows = {token.index: row for row, token in enumerate(tokens)}
    steps: Steps = defaultdict(list)  # the jumps over each stone, and their shares of it
    for jump in report.jumps:
        for step in jump.stones:
            steps[step.token.index, step.side or 1].append((jump, step.share or 0.0))
    stones = _chosen(report, steps, min(max(LEAST_STONES, len(tokens)), MOST_STONES))
    heights = np.linspace(0, len(tokens) - 1, len(stones) + 2)[1:-1]
    ways = [
        {rows[link.token.index]: link.weight for link in stone.links if link.token.index in rows}
        for stone in stones
    ]
    heaviest = max((weight for links in ways for weight in links.values()), default=1.0)
    alpha = min(0.4, 60 / max(1, sum(map(len, ways))))  # many lines would hide each other
    for stone, links, height in zip(stones, ways, heights, strict=True):
        _draw_ways(
            axis,
            [(row, height, row) for row in links],
            [0.3 + 2 * weight / heaviest for weight in links.values()],
            color=SIDE_COLOURS[stone.side],
            alpha=alpha,
        )
        over = steps[stone.token.index, stone.side]
        _draw_ways(
            axis,
            [(rows[jump.query.index], height, rows[jump.key.index]) for jump, _ in over],
            [0.5 + 2.5 * share for _, share in over],
            color=JUMP_COLOUR,
            zorder=3,
        )
        name = f"{names[stone.token.index]} {SIDE_SIGNS[stone.side]}"
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": SIDE_COLOURS[stone.side]}
        axis.text(0.5, height, name, fontsize=7, ha="center", va="center", bbox=box, zorder=4)
    axis.set_box_aspect(1)
    axis.set_anchor("S")  # beside matrices, which their colour bars push down
    axis.set(xlim=(0, 1), ylim=(len(tokens) - 0.5, -0.5), xticks=[])
    left = len(report.stones) - len(stones)
    axis.set_title("Stones" + (f" ({left} more not drawn)" if left else ""), fontsize=10)
    axis.set_xlabel("i → key scored high (+) or low (−) → k", fontsize=9)


def _draw_ways(
    axis: Axes, ways: list[tuple[float, float, float]], widths: list[float], **style: Any
) -> None:
    """Draw lines from the left over the middle to the right, at three heights."""
    from matplotlib.collections import LineCollection

    lines = [list(zip((0, 0.5, 1), way, strict=True)) for way in ways]
    axis.add_collection(LineCollection(lines, linewidths=widths, **style))


def _chosen(report: StoneReport, steps: Steps, most: int) -> list[Stone]:
    """Return the main stone of each jump and those that most walks go over, in the text's order."""
    tops = [max(jump.stones, key=lambda s: s.share or 0.0) for jump in report.jumps if jump.stones]
    first = {(stone.token.index, stone.side or 1) for stone in tops}

    def rank(stone: Stone) -> tuple[bool, float]:
        own = stone.token.index, stone.side
        return own in first, sum(share for _, share in steps[own])

    chosen = sorted(report.stones, key=rank, reverse=True)[:most]
    return sorted(chosen, key=lambda stone: (stone.token.index, -stone.side))


CELL = 1.35  # inches, of a matrix
BAR = 0.7  # inches, for the colour bar
LEAST_WIDTH = 4.5  # inches
MOST_PIXELS = 96  # in a row of a matrix: each is still as large as a dot of the picture


def draw_graphs(views: Iterable[GraphView]) -> Figure:
    """Draw the graphs of many heads as small matrices, a row for each layer.

    Rows of a matrix are the tokens that look, columns the tokens looked at, in one colour scale of
    square roots for all heads. Above each stands its density, with stones that of links. Of more
    than 96 tokens a dot shows the strongest of some neighbouring pairs, so that no edge is lost;
    only these dots are kept, and views may be made one after the other.

    Args:
        views: The graphs, from :func:`jat_graph.inspection.view_graphs`; of one text.

    Returns:
        A matplotlib figure that belongs to no window; pass it to :func:`save_figure`.

    Raises:
        ValueError: If there is no graph.
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).

    Reference:
        Clark et al. 2019, "What Does BERT Look At?", shows heads of a model beside each other.
    """
    shown = []
    for view in views:
        weights = view.weights
        if len(view.tokens) > MOST_PIXELS:  # single pairs could not be seen
            weights = F.adaptive_max_pool2d(weights[None], MOST_PIXELS)[0]
        shown.append(replace(view, weights=weights))
    if not shown:
        raise ValueError("views must be at least one, got none")
    layers = sorted({own.report.layer for own in shown})
    heads = sorted({own.report.head for own in shown})
    width = max(LEAST_WIDTH, len(heads) * CELL + 0.2)
    height = len(layers) * (CELL + 0.2) + BAR
    length = len(shown[0].tokens)
    joined, meaning = "joined pairs", "share of keys that voted for a pair of tokens (row, column)"
    if isinstance(shown[0].report, StoneReport):
        joined = "links to stones"
        meaning = "share of the walks from a token (row) that end at another (column)"
    heading = f"Graph of each head on {length} tokens, and its share of {joined} in the whole text"
    if length > MOST_PIXELS:
        heading += f"; a dot is the strongest of some {-(-length // MOST_PIXELS)}² pairs"
    figure = new_figure(width, height, heading=heading, size=10)
    from matplotlib.colors import PowerNorm  # which is there, or there would be no figure

    axes = figure.subplots(len(layers), len(heads), squeeze=False)
    for axis in axes.ravel():
        axis.set_axis_off()
    norm = PowerNorm(0.5, vmin=0.0, vmax=max(float(own.weights.max()) for own in shown) or 1.0)
    for own in shown:
        report = own.report
        axis = axes[layers.index(report.layer), heads.index(report.head)]
        matrix = np.ma.masked_equal(own.weights.numpy(), 0.0)  # no edge: white
        image = axis.imshow(matrix, cmap=graph_colours(), norm=norm, interpolation="nearest")
        axis.set_axis_on()
        axis.set(xticks=[], yticks=[])
        title = f"layer {report.layer}, head {report.head}: {report.density:.0%}"
        axis.set_title(title, fontsize=6.5, pad=3)
    bar = figure.colorbar(
        image, ax=axes, location="bottom", shrink=0.5, aspect=40, pad=0.12 / len(layers)
    )
    bar.set_label(meaning, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure
