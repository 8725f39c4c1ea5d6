"""Pictures of an atlas: a panel for each layer."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from jat_graph.directions import isolated
from jat_graph.probes.atlas.maps import CLUSTER, OTHER, AtlasMaps, LayerMap
from jat_graph.viz import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Colours of Okabe and Ito, which differ under every colour blindness; shapes differ as well.
STYLES = (
    ("#0072B2", "o"),
    ("#D55E00", "^"),
    ("#009E73", "s"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
    ("#000000", "X"),
    ("#B8A800", "*"),
)
REST, UNKNOWN = ("#777777", "+"), ("#BBBBBB", ".")
ACROSS, SIDE, LINE = 4, 2.9, 0.16  # panels in a row; inches
LETTERS = 46  # of a cluster's words, and of a kind's name


def draw_atlas(maps: AtlasMaps, kind: str, method: str) -> Figure:
    """Draw the uses of a word after each layer, by cluster or by what is known of them."""
    across = min(ACROSS, len(maps.layers))
    down = -(-len(maps.layers) // across)
    lines = max(len(layer.words) for layer in maps.layers) if kind == CLUSTER else 0
    names = _names(maps, kind)
    notes = 0.0 if kind == CLUSTER else LINE * 1.25 * (-(-len(names) // across) + 1)
    width, height = across * SIDE, down * (SIDE + 0.2 + LINE * lines)
    number, word = len(maps.uses.places), _safe(maps.uses.word)
    heading = f"{number} uses of “{word}” by {kind}, laid out by {method}"
    figure = new_figure(width, height + notes, heading=heading, size=12, notes=notes)
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for axis in axes[len(maps.layers) :]:
        axis.set_axis_off()
    for axis, layer in zip(axes, maps.layers, strict=False):
        _draw_layer(axis, layer, maps.groups(kind, layer), names)
        if kind == CLUSTER:
            _write_words(axis, layer, names)
    if kind != CLUSTER:
        handles = [_handle(style, name) for name, style in names.items()]
        figure.legend(handles=handles, loc="lower center", ncols=across, fontsize=8, frameon=False)
    return figure


def _names(maps: AtlasMaps, kind: str) -> dict[str, tuple[str, str]]:
    """The shape and colour of each group, the common ones first."""
    groups = [group for layer in maps.layers for group in maps.groups(kind, layer)]
    known = sorted(set(groups) - {"", OTHER}, key=lambda own: (-groups.count(own), own))
    if kind == CLUSTER:
        known.sort(key=int)
    found = {own: STYLES[place % len(STYLES)] for place, own in enumerate(known)}
    found |= {OTHER: REST} if OTHER in groups else {}
    return found | ({"": UNKNOWN} if "" in groups else {})


def _draw_layer(
    axis: Axes, layer: LayerMap, groups: list[str], names: dict[str, tuple[str, str]]
) -> None:
    for name, (colour, marker) in reversed(names.items()):  # the unknown below all others
        inside = np.array([group == name for group in groups])
        if inside.any():
            x, y = layer.places[inside].T
            axis.scatter(x, y, s=9, c=colour, marker=marker, lw=0.5, alpha=0.8)
    axis.set(xticks=[], yticks=[])
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_title(layer.name, fontsize=9)


def _write_words(axis: Axes, layer: LayerMap, names: dict[str, tuple[str, str]]) -> None:
    """Number the clusters, and write their words below."""
    for cluster in layer.words:
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "black", "lw": 0.5}
        axis.annotate(
            str(cluster + 1), layer.middle(cluster), fontsize=7, ha="center", va="center", bbox=box
        )
    handles = [
        _handle(names[str(cluster + 1)], f"{cluster + 1}: {', '.join(words)}")
        for cluster, words in sorted(layer.words.items())
    ]
    axis.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(-0.03, -0.01),
        fontsize=7,
        frameon=False,
        handletextpad=0.1,
        labelspacing=0.25,
        borderaxespad=0.1,
    )


def _handle(style: tuple[str, str], name: str) -> Line2D:
    from matplotlib.lines import Line2D

    label = textwrap.shorten(name or "not known", LETTERS, placeholder=" …")
    return Line2D([], [], color=style[0], marker=style[1], ls="", ms=4, label=_safe(label))


def _safe(text: str) -> str:
    """A text that matplotlib reads as no mathematics."""
    return isolated(text.replace("$", r"\$"))
