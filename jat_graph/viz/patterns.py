"""Pictures of attention patterns: which query may attend to which key, or what a layer reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from jat_graph.checks.numbers import PATTERN_TOKENS, check_integer, is_layer, read_layer
from jat_graph.patterns import Pattern, Union, parse_pattern
from jat_graph.patterns.base import pairs_of
from jat_graph.viz.figures import COLOURS, new_figure, page_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL, MARGIN = 2.2, 1.1  # inches; the margin is for titles and names
SEVERAL, NOTHING = "#222222", "#ffffff"  # for what several allow, and none
MAX_GRID = 64  # rows or columns of a panel up to which single pairs are outlined
MAX_TITLE = 33
MOST_AREAS = 4096  # of which each has a column
SHORT = 12  # letters of names of which two stand beside each other


class Panel(NamedTuple):
    """What a panel shows; a colour is named below it if there is another."""

    title: str
    colours: Tensor  # 0 for none, a name's number from 1, one more for several, [rows, columns]
    names: tuple[str, ...]  # of the colours
    columns: str = "key"
    rows: str = "query"


def draw_patterns(patterns: Sequence[Pattern | str], length: int) -> Figure:
    """Draw patterns beside each other, one panel for each of a pattern's kinds of heads.

    Rows are queries, columns keys. The members of a union have a colour each; a pair that several
    of them allow is black. The text of a layer that does not read token by token can stand for a
    pattern: of ``"memory-compressed:3:3:causal"`` the picture shows the tokens in the slots that a
    query reads, of ``"area:3"`` the areas, and of ``"block:5"`` tokens and blocks, both ways.

    Args:
        patterns: The patterns, or texts of patterns and of layers.
        length: Number of tokens.

    Returns:
        A matplotlib figure that belongs to no window; pass it to :func:`save_figure`.

    Raises:
        ValueError: If there is no pattern, a text means none, or the length is below 1 or too large
            to be seen.
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).

    Reference:
        Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", Figure 1.
    """
    check_integer("length", length, least=1, below=PATTERN_TOKENS + 1)
    if not patterns:
        raise ValueError("patterns must be at least one, got none")
    panels = [panel for pattern in patterns for panel in _panels(pattern, length)]
    columns = min(max(1, int(page_width() / PANEL)), len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(columns * PANEL + 0.2, rows * (PANEL + MARGIN))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        draw_panel(axis, panel)
    for axis in axes[len(panels) :]:
        axis.axis("off")
    return figure


def _panels(pattern: Pattern | str, length: int) -> list[Panel]:
    """Show which member allows each pair, for each kind of heads."""
    if isinstance(pattern, str):
        if is_layer(pattern):
            name, arguments = read_layer(pattern)
            return LAYERS[name](*arguments, length)
        pattern = parse_pattern(pattern)
    members = pattern.members if isinstance(pattern, Union) else (pattern,)
    spec = pattern.spec
    name = spec if len(spec) <= MAX_TITLE else spec[: MAX_TITLE - 1] + "…"
    names = tuple(member.spec for member in members)
    rank, panels = torch.arange(length)[None], []
    for head in range(pattern.period):
        share = pattern.num_edges(length, head) / length**2
        heads = f"heads {head}, {head + pattern.period}, …: " if pattern.period > 1 else ""
        pairs = torch.cat([pairs_of(member.of_head(head), rank, rank) for member in members])
        title = f"{name}\n{heads}{share:.1%} of the pairs"
        panels.append(Panel(title, colours_of(pairs), names))
    return panels


def _memory_panel(kernel_size: int, stride: int, is_causal: bool, length: int) -> list[Panel]:
    """The tokens in the slots that a query reads (Liu et al. 2018, "Generating Wikipedia")."""
    check_integer("stride", stride, least=1)
    if stride > kernel_size:
        raise ValueError(f"stride must be at most kernel_size={kernel_size}, got {stride}")
    token, start = torch.arange(length), torch.arange(0, length, stride)
    stop = start + kernel_size
    inside = (token >= start[:, None]) & (token < stop[:, None])  # a slot is a window, [M, L]
    read = torch.ones(length, len(start), dtype=torch.bool)
    if is_causal:
        read = stop <= token[:, None]  # [L, M]: slots that have ended
    first = (token == 0).expand(length, length)
    ways = [read[:, parity::2].float() @ inside[parity::2].float() for parity in (0, 1)]
    spec = f"memory-compressed:{kernel_size}:{stride}" + ":causal" * is_causal
    title = f"{spec}\n{length} tokens in {1 + len(start)} keys"
    names = ("first token", "slots 0, 2, …", "slots 1, 3, …")
    colours = colours_of(torch.stack([first, *ways]))
    return [Panel(title, colours, names, columns="token in the window of a key")]


def _area_panels(max_width: int, is_causal: bool, length: int) -> list[Panel]:
    """Return the tokens of each area, and the areas that a query reads."""
    # Li et al. 2019, "Area Attention": an area is a span of at most so many tokens, and read if all
    # of them may be.
    check_integer("max_width", max_width, least=1)
    widths = range(1, min(max_width, length) + 1)
    if (count := sum(length + 1 - width for width in widths)) > MOST_AREAS:
        raise ValueError(f"areas must be at most {MOST_AREAS} to be drawn, got {count}")
    token = torch.arange(length)[:, None]
    start = torch.cat([torch.arange(length + 1 - width) for width in widths])  # [A]
    width = torch.cat([torch.full((length + 1 - width,), width) for width in widths])  # [A]
    made = (token >= start) & (token < start + width)  # [L, A]
    read = start + width <= token + 1 if is_causal else torch.ones_like(made)
    names = tuple(f"{width} token{'s' * (width > 1)}" for width in widths)
    spec = f"area:{max_width}" + ":causal" * is_causal
    title = f"{spec}\n{length} tokens make {count} areas"
    share = f"{spec}\n{float(read.float().mean()):.1%} of the areas are read"
    return [
        Panel(title, made * width, names, columns="area", rows="token"),
        Panel(share, read * width, names, columns="area"),
    ]


def _block_panels(size: int, length: int) -> list[Panel]:
    """Return the tokens that a query reads one by one, and the blocks, each as one vector."""
    # Shen et al. 2018, "Bi-Directional Block Self-Attention".
    check_integer("block_length", size, least=1)
    query, key = torch.arange(length)[:, None], torch.arange(length)
    ahead, block = key // size - query // size, key // size
    names = ("tokens one by one", "blocks 0, 2, …", "blocks 1, 3, …")
    panels = []
    for way, near, far in (
        ("forward", key < query, ahead <= 0),
        ("backward", key > query, ahead >= 0),
    ):
        colours = torch.where((ahead == 0) & near, 1, far * (2 + block % 2))
        panels.append(Panel(f"block:{size}\n{way}", colours, names, "token, and its block"))
    return panels


# What layers that a text names read in a sequence without padding.
LAYERS: dict[str, Callable[..., list[Panel]]] = {
    "memory-compressed": _memory_panel,
    "area": _area_panels,
    "block": _block_panels,
}


def colours_of(counts: Tensor) -> Tensor:  # how many ways each name has, [names, *] -> [*]
    """Return 0 where there is no way, a name's number from 1, and one more for several ways."""
    number = torch.arange(1, len(counts) + 1)[:, None, None]
    return torch.where(counts.sum(0) > 1, len(counts) + 1, (counts.bool() * number).sum(0))


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
    axis.set_title(panel.title, fontsize=8)
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
            bbox_to_anchor=(0.5, -0.24),
            ncols=2 if max(map(len, panel.names)) <= SHORT else 1,
            fontsize=7,
            frameon=False,
        )
