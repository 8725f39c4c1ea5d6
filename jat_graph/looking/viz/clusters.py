"""Pictures of heads that read by clusters: how a token descends, what is lost, and the time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch_geometric.data import HeteroData

from jat_graph.looking.directions import named
from jat_graph.looking.inspection.fidelity import Fidelity
from jat_graph.looking.viz.figures import (
    COLOURS,
    PAGE,
    Axes,
    Figure,
    add_bar,
    new_figure,
    save_figure,
    short_label,
)
from jat_graph.looking.viz.jumps import FAINT, INK, MAX_LABEL
from jat_graph.nn.convs import node_means

ROW, WORDS, BELOW = 0.75, 1.15, 2.35  # inches: of a level, of words, of all below the keys
WORD, BESIDE = 0.13, 0.8  # inches: from a word to the next, of the names of levels
BAR = 0.14  # of a level, the height of a bar of keys
LEAST = 1e-3  # of the attention, below which all has one colour, and no key its word
LETTERS, CONTEXT = 12, 4  # of a key's word; tokens that are written before the one that looks
DESCENT_COLOURS = "plasma_r"
EDGE = 0.2  # of the text, where the words of the token that looks stand beside it

Array: TypeAlias = "np.ndarray[Any, Any]"


class Descent(NamedTuple):
    """What one token does with a tree: n keys, and then its nodes, level by level."""

    row: Array  # 0 for keys, 1 for clusters
    place: Array  # in the text, of nodes the mean of their keys
    parent: Array  # -1 for none
    weight: Array  # attention to all that is below
    opened: Array  # whether its children, or keys, are read
    read: Array  # whether it is read itself: exactly, or as a mean

    @classmethod
    def of(cls, graph: HeteroData, token: int) -> Descent:
        """Return what a token does in a graph of :func:`jat_graph.tree_graph`."""
        graph = graph.detach().cpu()
        keys = graph["token"].num_nodes
        nodes = graph["cluster"]
        row = torch.cat([nodes.level.new_zeros(keys), nodes.level + 1])
        position = torch.arange(keys).float()
        parent = torch.full_like(row, -1)
        place = torch.cat([position, node_means(position.unsqueeze(1), graph).squeeze(1)])
        weight = torch.zeros(len(row))
        opened = row < 0
        read = row < 0
        for kind, first in (("token", 0), ("cluster", keys)):
            child, above = graph[kind, "in", "cluster"].edge_index
            parent[child + first] = above + keys
            edges = graph[kind, "read_by", "token"]
            own = edges.edge_index[1] == token
            node = edges.edge_index[0, own] + first
            read[node] = True
            weight[node] = edges.weight[own].float()
        node, reader = graph["cluster", "opened_by", "token"].edge_index
        opened[node[reader == token] + keys] = True
        for level in range(int(row.max())):
            own = (row == level) & (parent >= 0)
            weight.index_add_(0, parent[own], weight[own])
        return cls(*(x.numpy() for x in (row, place, parent, weight, opened, read)))

    @property
    def below(self) -> Any:
        """Whether it is in something that is opened."""
        return (self.parent >= 0) & self.opened[self.parent]

    def end(self, token: int) -> int:
        """Return the last place that the token may read: its own, or else the end of the text."""
        reached = self.read | self.opened
        for level in reversed(range(int(self.row.max()))):
            own = (self.row == level) & (self.parent >= 0)
            reached[own] |= reached[self.parent[own]]
        keys = np.flatnonzero(self.row == 0)
        return int(keys[-1]) if reached[keys[token + 1 :]].any() else token


def draw_descent(graph: HeteroData, words: Sequence[str]) -> Figure:
    """Draw how one token descends the tree over its keys, in the words of the text.

    From left to right is the text, in causal order up to the token; from top to bottom stand the
    token that looks, groups, clusters and keys; a node is in the middle of its keys. What the token
    opens has the colour of all its attention below; what stands for its keys, as their mean, is
    faint. Bars are the first keys and those in no cluster, which it reads in any case: a few last
    ones of the text, or in causal order those near it. The keys of most attention have their words.

    Args:
        graph: A graph of :func:`jat_graph.tree_graph`; of several tokens that read the last looks.
        words: The text of each of its tokens, as a tokenizer decodes them one by one.

    Returns:
        The figure, which :func:`save_figure` writes; its label is its caption.

    Raises:
        ValueError: If there is not a word for each token.
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).
    """
    number = graph["token"].num_nodes
    if len(words) != number:
        raise ValueError(f"words must be {number}, one for each token, got {len(words)}")
    index = int(graph["token", "read_by", "token"].edge_index[1].max())
    found = Descent.of(graph, index)
    top = int(found.row[found.opened | found.read].max()) + 1
    end = found.end(index)
    figure = new_figure(PAGE, ROW * top + BELOW)
    axis = figure.subplots()
    image = _draw_tree(axis, found, index, top)
    _draw_keys(axis, found, words, end, image)
    said = "".join(words[max(0, index - CONTEXT) : index + 1]).strip()
    while len(said) > MAX_LABEL and " " in said:  # whole words, the last ones
        said = said.partition(" ")[2]
    own = _word(said[-MAX_LABEL:], MAX_LABEL)
    box: Any = {"boxstyle": "round,pad=0.3", "fc": "white", "ec": INK, "lw": 0.8}
    side = "left" if index < EDGE * end else "right" if index > (1 - EDGE) * end else "center"
    axis.text(index, top, own, fontsize=8, ha=side, va="center", bbox=box, zorder=4)
    names = ["keys", "clusters", *("groups of\n" * n + "groups" for n in range(top))]
    axis.set_yticks(range(top), names[:top])
    axis.set(xlim=(-0.01 * (end + 1), 1.01 * (end + 1)), ylim=(-WORDS / ROW, top + 0.25))
    axis.set_xlabel("position in the text", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.tick_params(axis="y", length=0)
    axis.spines[["left", "right", "top"]].set_visible(False)
    _explain(figure, axis, image)
    exact = found.read & (found.row == 0)
    said = own.replace(r"\$", "$")  # a label is not drawn
    figure.set_label(
        f"“{said}” reads {int(exact.sum())} of {end + 1} keys exactly, with "
        f"{float(found.weight[exact].sum()):.0%} of its attention, and "
        f"{int((found.read & ~exact).sum())} nodes in the place of all others.",
    )
    return figure


def _word(text: str, most: int) -> str:
    return named(short_label(" ".join(text.split()) or repr(text)[1:-1], most))


def _draw_tree(axis: Axes, found: Descent, token: int, top: int) -> Any:
    """Draw what is opened and read in colours, and faint what stands as a mean."""
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection
    from matplotlib.colors import ListedColormap, LogNorm

    row, place, _, weight, opened, read = found
    colours = ListedColormap(colormaps[DESCENT_COLOURS](np.linspace(0.15, 1.0, 256)))
    look: Any = {"norm": LogNorm(LEAST, 1.0, clip=True), "cmap": colours}
    ends = np.stack([place, row], 1)
    below = found.below
    stands = read & (row > 0)
    lines = np.stack([ends, np.where(below[:, None], ends[found.parent], (token, top))], 1)
    faint = LineCollection([*lines[stands & below]], color=FAINT, linewidths=0.3, zorder=1)
    axis.add_collection(faint)
    axis.scatter(place[stands], row[stands], s=5, color=FAINT, lw=0, zorder=2)
    order = weight.argsort()  # the heaviest above all others
    strong = order[(opened | (read & below & (row == 0)))[order]]
    ways = LineCollection([*lines[strong]], array=weight[strong], linewidths=0.9, zorder=2, **look)
    axis.add_collection(ways)
    own = strong[opened[strong]]
    look |= {"c": weight[own], "s": 24, "ec": "white", "lw": 0.4, "zorder": 3}
    axis.scatter(place[own], row[own], **look)
    return ways


def _draw_keys(axis: Axes, found: Descent, words: Sequence[str], end: int, image: Any) -> None:
    """Draw the keys that are read exactly, with the heaviest of their words."""
    exact = found.read & (found.row == 0)
    weight = found.weight
    bars, keys = (np.flatnonzero(exact & (found.below == inside)) for inside in (0, 1))
    axis.hlines(0, 0, end, color=FAINT, lw=0.5, zorder=0)
    for run in np.split(bars, np.flatnonzero(np.diff(bars) > 1) + 1):
        colour = image.to_rgba(weight[run].sum())
        axis.broken_barh([(run[0] - 0.5, len(run))], (-BAR / 2, BAR), color=colour)
    axis.vlines(keys, -BAR / 2, BAR / 2, color=image.to_rgba(weight[keys]), lw=1)
    room = PAGE - BESIDE
    best = np.argsort(-weight * exact, kind="stable")[: int(room / WORD / 2)]
    best = np.sort(best[(weight * exact)[best] >= LEAST])
    # As near to their keys as they have room.
    step = np.arange(len(best)) * WORD / room * end
    x = (best - step).clip(0, end - step[-1:])
    right = np.maximum.accumulate(x)
    left = np.minimum.accumulate(x[::-1])[::-1]
    line: Any = {"arrowstyle": "-", "lw": 0.4, "color": FAINT, "relpos": (0.5, 1), "shrinkB": 0}
    look: Any = {"fontsize": 7, "rotation": 90, "ha": "center", "va": "top", "arrowprops": line}
    for key, place in zip(best.tolist(), (right + left) / 2 + step, strict=True):
        look["color"] = image.to_rgba(weight[key])
        axis.annotate(_word(words[key], LETTERS), (key, -BAR / 2), (place, -0.4), **look)


def _explain(figure: Figure, axis: Axes, image: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    bar = add_bar(figure, image, axis, "attention to what is below", aspect=40, shrink=0.6)
    bar.set_ticks([LEAST, 0.01, 0.1, 1], labels=["≤ 0.1 %", "1 %", "10 %", "100 %"])
    colour = image.to_rgba(0.1)
    handles = [
        Line2D([], [], c=colour, marker="o", lw=0, ms=5, label="opened: what is in it is read"),
        Line2D([], [], c=FAINT, marker="o", lw=0, ms=2, label="stands for its keys, as their mean"),
        Line2D([], [], c=colour, marker="|", lw=0, ms=7, label="key of an opened cluster"),
        Patch(color=colour, label="first keys, and those in no cluster"),
    ]
    look: Any = {"loc": "outside lower center", "frameon": False, "fontsize": 8}
    figure.legend(handles=handles, ncols=2, **look)


WIDTH, HEIGHT = 6.4, 4.2  # inches, without the heading
LAYER_COLOURS = "viridis"
MOST_ROWS = 16  # of layers below each other


def draw_fidelity(report: Fidelity) -> Figure:
    """Draw the error of each head over how much of its own attention is on keys that are exact.

    A head is a dot, its colour says which layer it is in. Lower is better; to the left are heads
    whose attention is mostly on keys that are read by means.

    Args:
        report: What :func:`jat_graph.fidelity` returned.

    Returns:
        The figure, which :func:`save_figure` writes; its label is its caption.

    Raises:
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).
    """
    figure = new_figure(WIDTH, HEIGHT)
    share = sum(head.share for head in report.heads) / len(report.heads)
    figure.set_label(
        f"{len(report.heads)} heads on clusters that read {share:.1%} of the keys exactly, "
        f"{report.sequences} sequences of "
        f"{report.tokens / report.sequences:.0f} tokens on average ({report.dense} read densely): "
        f"cosine of token states {report.token_cosine:.3f}, "
        f"of mean embeddings {report.embedding_cosine:.3f}.",
    )
    from matplotlib import colormaps  # which is there, or there would be no figure

    axis = figure.subplots()
    layers = sorted({head.layer for head in report.heads})
    # The brightest yellow would not be seen on white.
    colours = colormaps[LAYER_COLOURS](np.linspace(0, 0.9, len(layers)))
    for layer, colour in zip(layers, colours, strict=True):
        own = [head for head in report.heads if head.layer == layer]
        masses = [100 * head.mass for head in own]
        errors = [head.error for head in own]
        axis.scatter(masses, errors, color=colour, s=22, alpha=0.85, lw=0, label=str(layer))
    axis.set_xlim(0, 102)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("own attention on keys that are exact, %", fontsize=9)
    axis.set_ylabel("error of the output, ‖o' − o‖ / ‖o‖", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
    columns = -(-len(layers) // MOST_ROWS)
    figure.legend(title="layer", loc="outside right upper", fontsize=8, ncols=columns)
    return figure


def draw_lengths(points: list[dict[str, float]], path: Path) -> None:
    """Draw seconds by SDPA and by clusters over the length, and how near states are."""
    figure = new_figure(PAGE, 2.7)
    seconds, near = figure.subplots(1, 2)
    lengths = [point["tokens"] for point in points]
    colours = iter(COLOURS)
    states = {"token_cosine": "states of tokens", "embedding_cosine": "mean embedding"}
    for axis, names in ((seconds, {"sdpa": "SDPA", "clusters": "clusters"}), (near, states)):
        for (name, label), colour in zip(names.items(), colours, strict=False):
            axis.plot(lengths, [p[name] for p in points], "o-", ms=4, color=colour, label=label)
        axis.set(xlabel="tokens", xticks=[n for n in lengths if n > max(lengths) / 8])
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    seconds.set(ylabel="seconds for a text", ylim=(0, None))
    lowest = min(0.9, *(point[name] for point in points for name in states))
    near.set(ylabel="cosine to the model on SDPA", ylim=(lowest, 1.005))
    save_figure(figure, path)
