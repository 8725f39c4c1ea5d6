"""Pictures of trees: as arcs over a sentence, and as points in the space of a probe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from torch import Tensor

from jat_graph.directions import isolated
from jat_graph.probes.geometry.training import squared_distances
from jat_graph.probes.geometry.trees import Edges, Floats, Tree, spanning_tree
from jat_graph.probes.treebank import Sentence
from jat_graph.viz.heads import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Where: TypeAlias = Mapping[int, tuple[float, float]]  # each word's place

# Okabe and Ito's colours, which all readers tell apart; what differs has another dash, too.
RIGHT, WRONG, QUIET = "#0072b2", "#d55e00", "#767676"
LETTER, GAP = 0.085, 0.18  # inches, of a word's letters and between words
LINE, ASIDE = 0.22, 0.04  # inches, of a label's height, and from a word's middle to an arc's end
MOST_LETTERS = 20
NEARER = (0.6, 0.4)  # an edge's number: to the word, and to its head
PLANE = "In the space of the probe: its two main axes"
DEVIATION = "PuOr_r"  # darker is farther from 1, on both sides


def draw_tree_arcs(sentence: Sentence, distances: Tensor) -> Figure:
    """Draw a sentence's tree above it, and below it the tree of least distances.

    Edges that both have are whole lines; those that one of them lacks are dashed, in another
    colour. Punctuation is grey, and has no part in it.

    Args:
        sentence: The sentence.
        distances: Of all pairs of words, squared or not.

    Returns:
        A matplotlib figure that belongs to no window; pass it to
        :func:`jat_graph.viz.save_figure`.

    Raises:
        ImportError: If matplotlib is missing (``pip install 'jat_graph[probes]'``).
        ValueError: If the distances are not those of the words.

    Shapes:
        - ``distances``: [n, n]

    Reference:
        Hewitt and Manning 2019, Figure 2.
    """
    if distances.shape != (len(sentence), len(sentence)):
        wanted = f"[{len(sentence)}, {len(sentence)}]"
        raise ValueError(f"distances must be {wanted}, got {list(distances.shape)}")
    tree = Tree(sentence)
    predicted = spanning_tree(distances.detach().double().cpu().numpy(), tree.shown)
    places = _word_places(sentence)
    both = predicted | tree.edges
    height = 0.3 + 0.5 * max((_rise(places, edge) for edge in both), default=0.5)
    hits = f"{len(predicted & tree.edges)} of {len(tree.edges)} edges found"
    figure = new_figure(
        max(4.5, places[-1] + 1.2), 2 * height + 0.3, heading=f"The tree, and below: {hits}"
    )
    axis = figure.subplots()
    for side, own, other in ((1, tree.edges, predicted), (-1, predicted, tree.edges)):
        for edge in sorted(own):
            _draw_arc(axis, places, edge, side, edge in other)
    for place, word in enumerate(sentence.words):
        colour = "black" if place in tree.shown else QUIET
        axis.text(
            places[place], 0, _label(word), ha="center", va="center", fontsize=9, color=colour
        )
    _finish_arcs(axis, places, height)
    return figure


def draw_tree_plane(sentence: Sentence, points: Tensor) -> Figure:
    """Draw a sentence's tree beside its words in the space of a probe, seen from its two main axes.

    An edge's colour, and the number at it, say how far its squared distance in that space is from
    1, which it would be if the space held the tree. Dashed lines join words that the tree of least
    distances joins, and the sentence's tree does not. Punctuation is left out.

    Args:
        sentence: The sentence.
        points: Its words in the space of a probe.

    Returns:
        A matplotlib figure that belongs to no window; pass it to
        :func:`jat_graph.viz.save_figure`.

    Raises:
        ImportError: If matplotlib is missing (``pip install 'jat_graph[probes]'``).
        ValueError: If the points are not those of the words, or all words are punctuation.

    Shapes:
        - ``points``: [n, R]

    Reference:
        Coenen et al., *Visualizing and Measuring the Geometry of BERT*, 2019, Figure 3.
    """
    tree = Tree(sentence)
    if points.dim() != 2 or len(points) != len(sentence):
        raise ValueError(f"points must be [{len(sentence)}, R], got {list(points.shape)}")
    if not tree.shown:
        raise ValueError("sentence must have a word that is no punctuation, got none")
    squared = squared_distances(points.detach().double()).cpu().numpy()
    predicted = spanning_tree(squared, tree.shown)
    places = _word_places(sentence)
    side = max(4.0, 2.1 * math.sqrt(places[-1]))
    wide = max(4.0, places[-1] + 1.2)
    figure = new_figure(wide + side, side + 1.0)
    left, right = figure.subplots(1, 2, width_ratios=(wide, side))
    flat = {word: (places[word], -float(tree.depths[word])) for word in tree.shown}
    plane = _principal_plane(points.detach().double().cpu().numpy(), tree.shown, side)
    for axis, own in ((left, flat), (right, plane)):
        _draw_edges(axis, own, tree.edges, squared, numbers=axis is left)
    for edge in sorted(predicted - tree.edges):
        _draw_line(right, plane, edge, color=QUIET, linestyle=(0, (4, 3)), zorder=1)
    _draw_parse_words(left, sentence, flat)
    _draw_plane_words(right, sentence, plane, side)
    _add_deviation_bar(figure, right)
    return figure


def _label(word: str) -> str:
    """Cut long words, and show dollar signs as they are (matplotlib would read mathematics)."""
    short = word if len(word) <= MOST_LETTERS else word[: MOST_LETTERS - 1] + "…"
    return isolated(short.replace("$", r"\$"))


def _width(word: str) -> float:
    return LETTER * min(len(word), MOST_LETTERS) + GAP


def _word_places(sentence: Sentence) -> list[float]:
    """Where the middle of each word is, in inches."""
    widths = [_width(word) for word in sentence.words]
    ends = np.cumsum(widths)
    return [float(end - width / 2) for end, width in zip(ends, widths, strict=True)]


def _rise(places: Sequence[float], edge: tuple[int, int]) -> float:
    return math.sqrt(places[edge[1]] - places[edge[0]])


def _draw_arc(
    axis: Axes, places: Sequence[float], edge: tuple[int, int], side: int, found: bool
) -> None:
    """Draw half an ellipse over (1) or under (-1) the words."""
    from matplotlib.patches import Arc

    start, end = places[edge[0]] + ASIDE, places[edge[1]] - ASIDE
    arc = Arc(
        ((start + end) / 2, 0.14 * side),
        end - start,
        _rise(places, edge),
        theta1=0 if side > 0 else 180,
        theta2=180 if side > 0 else 360,
        color=RIGHT if found else WRONG,
        linestyle="-" if found else (0, (4, 2)),
        linewidth=1.6,
    )
    axis.add_patch(arc)


def _finish_arcs(axis: Axes, places: Sequence[float], height: float) -> None:
    from matplotlib.lines import Line2D

    axis.set(xlim=(-0.4, places[-1] + 0.6), ylim=(-height, height))
    axis.set_axis_off()
    lines = [
        Line2D([], [], color=RIGHT, label="in both trees"),
        Line2D([], [], color=WRONG, linestyle=(0, (4, 2)), label="in one of them"),
    ]
    place: Any = "outside lower center"
    axis.figure.legend(handles=lines, loc=place, ncols=2, fontsize=8, frameon=False)


def _principal_plane(points: Floats, shown: Sequence[int], side: float) -> Where:
    """Where words are along the two axes of most variance, in inches from their middle."""
    own = points[shown]
    left, sizes, _ = np.linalg.svd(own - own.mean(0), full_matrices=False)
    flat = np.zeros((len(own), 2))
    flat[:, : len(sizes[:2])] = left[:, :2] * sizes[:2]
    flat -= (flat.max(0) + flat.min(0)) / 2
    flat *= 0.4 * side / (np.abs(flat).max() or 1.0)
    return {word: (float(x), float(y)) for word, (x, y) in zip(shown, flat, strict=True)}


def _draw_line(axis: Axes, where: Where, edge: tuple[int, int], **style: Any) -> None:
    across, up = zip(*(where[word] for word in edge), strict=True)
    axis.plot(across, up, **style)


def _draw_edges(axis: Axes, where: Where, edges: Edges, squared: Floats, *, numbers: bool) -> None:
    """Draw edges in the colours of their deviation."""
    from matplotlib import colormaps

    for edge in sorted(edges):
        value = float(squared[edge])
        # A line around it, or that of an edge of about 1 would not be seen.
        _draw_line(axis, where, edge, color="black", linewidth=4.2, zorder=1)
        colour = colormaps[DEVIATION](value / 2)  # white at 1
        _draw_line(axis, where, edge, color=colour, linewidth=3.0, zorder=2)
        if numbers:
            low, high = sorted((where[word] for word in edge), key=lambda place: place[1])
            x, y = np.average([low, high], axis=0, weights=NEARER)  # a head has many edges
            box = {"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none"}
            axis.text(
                x, y, f"{value:.1f}", fontsize=7.5, ha="center", va="center", bbox=box, zorder=3
            )


def _draw_parse_words(axis: Axes, sentence: Sentence, where: Where) -> None:
    """Write the words at the joints of the tree."""
    for word, place in where.items():
        _write(axis, sentence.words[word], place)
    lowest = min(y for _, y in where.values())
    right = max(x for x, _ in where.values())
    axis.set(xlim=(-0.4, right + 0.8), ylim=(lowest - 0.5, 0.5))
    axis.set_title("Its tree, and the squared distance of each edge", fontsize=10)
    axis.set_axis_off()


def _draw_plane_words(axis: Axes, sentence: Sentence, where: Where, side: float) -> None:
    """Write the words beside their points, each where no other word or point is."""
    taken = [(x, y, 2 * ASIDE) for x, y in where.values()]
    for word, (x, y) in sorted(where.items(), key=lambda item: item[1][1]):
        wide = _width(sentence.words[word])
        aside, up = wide / 2 + 1.5 * ASIDE, 1.01 * LINE
        around = [(x, y + up), (x + aside, y), (x - aside, y), (x, y - up)]
        higher = [(x, y + up + step * LINE / 10) for step in range(45 * len(where))]
        place = next(own for own in (*around, *higher) if _is_free(*own, wide, taken))
        taken.append((*place, wide))
        axis.plot(x, y, "o", color="black", markersize=5, zorder=3)
        _write(axis, sentence.words[word], place)
    axis.set(xlim=(-side / 2, side / 2), ylim=(-side / 2, side / 2), aspect="equal")
    axis.set_title(f"{PLANE}\n(dashed: joined there alone)", fontsize=10)
    axis.set_axis_off()


def _is_free(x: float, y: float, wide: float, taken: Sequence[tuple[float, float, float]]) -> bool:
    """Tell whether a word would hide none of those that are written: middles and widths."""
    return all(
        abs(x - other) >= (wide + own) / 2 or abs(y - height) >= LINE
        for other, height, own in taken
    )


def _write(axis: Axes, word: str, place: tuple[float, float]) -> None:
    box = {"boxstyle": "round,pad=0.12", "fc": "white", "ec": "none"}
    axis.text(*place, _label(word), fontsize=9, ha="center", va="center", bbox=box, zorder=4)


def _add_deviation_bar(figure: Figure, axis: Axes) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colours = ScalarMappable(Normalize(0, 2), DEVIATION)
    bar = figure.colorbar(
        colours, ax=axis, location="bottom", shrink=0.7, aspect=30, pad=0.02, extend="max"
    )
    bar.set_ticks([0, 0.5, 1, 1.5, 2])
    bar.set_label("squared distance of an edge of the tree (1 if it fits)", fontsize=8)
    bar.ax.tick_params(labelsize=8)
