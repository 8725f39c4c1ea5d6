"""Pictures of attention patterns: which query may attend to which key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from jat_graph.checks.numbers import PATTERN_TOKENS, check_integer
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
SHORT = 12  # letters of names of which two stand beside each other


class Panel(NamedTuple):
    """What a panel shows; a colour is named below it if there is another."""

    title: str
    colours: Tensor  # 0 for none, a name's number from 1, one more for several, [L, L]
    names: tuple[str, ...]  # of the colours


def draw_patterns(patterns: Sequence[Pattern | str], length: int) -> Figure:
    """Draw patterns beside each other, one panel for each of a pattern's kinds of heads.

    Rows are queries, columns keys. The members of a union have a colour each; a pair that several
    of them allow is black.

    Args:
        patterns: The patterns, or their texts.
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
    pattern = parse_pattern(pattern) if isinstance(pattern, str) else pattern
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
        number = torch.arange(1, len(names) + 1)[:, None, None]
        several = pairs.sum(0) > 1
        colours = torch.where(several, len(names) + 1, (pairs * number).sum(0))
        panels.append(Panel(title, colours, names))
    return panels


def draw_panel(axis: Axes, panel: Panel) -> None:
    """Fill one panel: the pairs, a title, and the names of colours below."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    named = [*islice(cycle(COLOURS), len(panel.names)), SEVERAL]
    length = len(panel.colours)
    axis.imshow(
        panel.colours.numpy(),
        cmap=ListedColormap([NOTHING, *named]),
        vmin=-0.5,
        vmax=len(named) + 0.5,
        interpolation="nearest",
        extent=(0, length, length, 0),
        aspect="auto",
    )
    axis.set_box_aspect(1)
    for side in (axis.yaxis, axis.xaxis):
        if length <= MAX_GRID:
            side.set_ticks(range(length + 1), minor=True)
            side.grid(which="minor", color="#dddddd", linewidth=0.4)
    axis.tick_params(which="minor", length=0)
    axis.tick_params(labelsize=7)
    axis.set_title(panel.title, fontsize=8)
    axis.set_xlabel("key", fontsize=8)
    axis.set_ylabel("query", fontsize=8)
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
            fontsize=8,
            frameon=False,
        )
