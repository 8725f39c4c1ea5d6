"""Pictures of heads that read by clusters: what one reads, what all lose, and over the length."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.directions import named
from jat_graph.viz.figures import (
    COLOURS,
    TOKEN,
    add_bar,
    new_figure,
    page_width,
    panel_figure,
    save_figure,
    set_caption,
    short_label,
    token_room,
)
from jat_graph.viz.heads import GRAPH_COLOURS, LEAST_SIDE
from jat_graph.viz.jumps import MAX_LABEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from torch import Tensor

    from jat_graph.inspection import ClusterView, Token
    from jat_graph.inspection.fidelity import Fidelity


NEAR, OTHERS = "#c8ccd0", "#4d4d4d"  # of keys in the blocks around, and of the smaller clusters
MOST_NAMES = 48  # tokens up to which each row and column has its name
LISTED = len(COLOURS)  # clusters that are written out, each in its colour
LETTERS = 14  # of a line, for each inch of a page
TOKEN_LETTERS, KEY_LETTERS = (11, 27), (6, 16)  # for each inch, less those of what stands around


def draw_clusters(view: ClusterView) -> Figure:
    """Draw one head: what it reads exactly, its attention, and that of exact scores.

    Rows are the tokens that look, sorted by cluster, the largest first, and within a cluster as in
    the text; a line parts two clusters. Columns are the tokens looked at, in the order of the text.
    In the first panel keys in the blocks around a token are light grey, and those that its cluster
    names in the colour of the cluster, of small ones dark grey; everywhere else the cluster's score
    stands for the token's own. The two of attention share one colour scale of square roots. The
    legend has the largest clusters, as words.

    Args:
        view: What the head did, from :func:`jat_graph.inspection.view_clusters`.

    Returns:
        A matplotlib figure that belongs to no window, which :func:`save_figure` writes; its label
        is its caption.

    Raises:
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).

    Reference:
        Vyas, Katharopoulos and Fleuret, *Fast Transformers with Clustered Attention*, NeurIPS 2020,
        Figure 1 shows queries sorted by cluster in the same way.
    """
    report = view.report
    has_names = len(view.tokens) <= (token_room() or MOST_NAMES)
    side = max(LEAST_SIDE, TOKEN * len(view.tokens) * has_names)
    handles = _cluster_handles(view)
    heading = f"Layer {report.layer}, head {report.head}: {report.num_clusters} clusters"
    figure, axes, _ = panel_figure(side, heading=heading, lines=len(handles))
    order = view.joined.argsort(stable=True)
    _draw_panels(figure, axes, view, order)
    for axis in axes:
        for edge in np.flatnonzero(np.diff(view.joined[order].numpy())) + 0.5:
            axis.axhline(edge, color="#777777", linewidth=0.3)
        _name_sides(axis, view.tokens, order.tolist() if has_names else [])
    axes[0].set_ylabel("token that looks, by cluster", fontsize=8)
    title = "Tokens of a cluster → its best keys; share of the attention that is exact"
    title = "\n".join(wrap(title, int(LETTERS * page_width())))
    look: Any = {"handles": handles, "title": title, "fontsize": 7.5, "title_fontsize": 8}
    look |= {"frameon": False, "alignment": "left"}
    figure.legend(loc="outside lower left", **look)
    set_caption(
        figure,
        f"Layer {report.layer}, head {report.head}: {report.num_clusters} clusters; "
        f"{report.density:.0%} of the pairs are read exactly, which is {report.exact:.0%} of the "
        f"attention; {report.tv:.0%} of it goes elsewhere than by exact scores."
        + " A text this short is read densely: this is what clusters would do."
        * report.dense,
    )
    return figure


def _draw_panels(figure: Figure, axes: list[Axes], view: ClusterView, order: Tensor) -> None:
    """Show which keys are read exactly, and the attention in a scale where the rest is seen."""
    from matplotlib.colors import ListedColormap, PowerNorm

    parts = view.joined, view.near, view.best, view.attention, view.before
    joined, near, best, attention, before = (x[order].numpy() for x in parts)
    read = np.where(best, 2 + joined[:, None].clip(max=LISTED), near)  # 0 for none, 1 for blocks
    colours = ListedColormap(["#ffffff", NEAR, *COLOURS, OTHERS])
    look: Any = {"interpolation": "nearest", "aspect": "auto"}
    axes[0].imshow(read, cmap=colours, vmin=-0.5, vmax=LISTED + 2.5, **look)
    axes[0].set_title("Read exactly", fontsize=9)
    norm = PowerNorm(0.35, vmin=0.0, vmax=float(max(attention.max(), before.max())))
    shown = ("By clusters", attention), ("By exact scores", before)
    for axis, (title, values) in zip(axes[1:], shown, strict=True):
        image = axis.imshow(values, cmap=GRAPH_COLOURS, norm=norm, **look)
        axis.set_title(title, fontsize=9)
        add_bar(figure, image, axis, "attention").ax.locator_params(nbins=2)


def _name_sides(axis: Axes, tokens: tuple[Token, ...], order: list[int]) -> None:
    """Name rows and columns where an order of rows is given: where there is room for it."""
    axis.set_box_aspect(1)
    axis.set_xlabel("token looked at", fontsize=8)
    axis.tick_params(labelsize=8)
    if order:
        names = [named(short_label(token.text, MAX_LABEL)) for token in tokens]
        axis.set_xticks(range(len(names)), names, rotation=90)
        spec = axis.get_subplotspec()
        rows = [names[index] for index in order] if spec and spec.is_first_col() else []
        axis.set_yticks(range(len(names)), rows)
    else:
        axis.set_yticks([])


def _cluster_handles(view: ClusterView) -> list[Patch]:
    """Write out the largest clusters beside their colours, and name the two greys."""
    from matplotlib.patches import Patch

    handles = []
    for colour, cluster in zip(COLOURS, view.report.clusters, strict=False):
        size = len(cluster.members) + cluster.hidden_members
        share = sum(member.exact for member in cluster.members) / max(1, len(cluster.members))
        own = _words([m.token for m in cluster.members], TOKEN_LETTERS, size)
        keys = _words([key.token for key in cluster.keys], KEY_LETTERS, len(cluster.keys))
        handles.append(Patch(color=colour, label=f"{size}:  {own}  →  {keys};  {share:.0%}"))
    left = len(view.report.clusters) - LISTED
    handles += [Patch(color=OTHERS, label=f"best keys of {left} more clusters")] * (left > 0)
    return [*handles, Patch(color=NEAR, label="keys in the blocks around a token")]


def _words(tokens: list[Token], letters: tuple[int, int], size: int) -> str:
    """Return as many of the first tokens as have room, and how many more there are."""
    names = [named(short_label(token.text, MAX_LABEL)) for token in tokens]
    ends = np.cumsum([len(name) + 1 for name in names])
    room = letters[0] * page_width() - letters[1]
    said = names[: int((ends <= room).sum())]
    return " ".join(said) + f" … {size - len(said)} more" * (size > len(said))


WIDTH, HEIGHT = 6.4, 4.2  # inches, without the heading
LAYER_COLOURS = "viridis"
MOST_ROWS = 16  # of layers below each other


def draw_fidelity(report: Fidelity) -> Figure:
    """Draw the error of each head over the share of keys that it reads exactly.

    A head is a dot, its colour says which layer it is in. Below and to the left is better: less is
    read, and less is lost.

    Args:
        report: What :func:`jat_graph.fidelity` returned.

    Returns:
        A matplotlib figure that belongs to no window, which :func:`save_figure` writes; its label
        is its caption.

    Raises:
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).
    """
    figure = new_figure(WIDTH, HEIGHT)
    set_caption(
        figure,
        f"{len(report.heads)} heads on clusters, {report.sequences} sequences of "
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
        shares, errors = [100 * head.share for head in own], [head.error for head in own]
        axis.scatter(shares, errors, color=colour, s=22, alpha=0.85, lw=0, label=str(layer))
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("keys that a query reads exactly, %", fontsize=9)
    axis.set_ylabel("error of the output, ‖o' − o‖ / ‖o‖", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25)
    columns = -(-len(layers) // MOST_ROWS)
    figure.legend(title="layer", loc="outside right upper", fontsize=8, ncols=columns)
    return figure


def draw_lengths(points: list[dict[str, float]], path: Path) -> None:
    """Draw seconds by SDPA and by clusters over the length, and how near states are."""
    figure = new_figure(page_width(), 2.7)
    seconds, near = figure.subplots(1, 2)
    lengths, colours = [point["tokens"] for point in points], iter(COLOURS)
    states = {"token_cosine": "states of tokens", "embedding_cosine": "mean embedding"}
    for axis, names in ((seconds, {"sdpa": "SDPA", "clusters": "clusters"}), (near, states)):
        for (name, label), colour in zip(names.items(), colours, strict=False):
            axis.plot(lengths, [p[name] for p in points], "o-", ms=4, color=colour, label=label)
        axis.set(xlabel="tokens", xticks=[n for n in lengths if n >= max(lengths) / 8])
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    seconds.set(ylabel="seconds for a text", ylim=(0, None))
    lowest = min(0.9, *(point[name] for point in points for name in states))
    near.set(ylabel="cosine to the model on SDPA", ylim=(lowest, 1.005))
    save_figure(figure, path)
