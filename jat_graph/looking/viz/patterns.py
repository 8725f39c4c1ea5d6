"""Pictures of attention patterns: which query may attend to which key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any

import torch

from jat_graph.core.numbers import PATTERN_TOKENS, check_integer
from jat_graph.jumps.patterns import Pattern, Union, parse_pattern
from jat_graph.jumps.patterns.base import pairs_of
from jat_graph.looking.viz.figures import COLOURS, PAGE, Axes, Figure, new_figure

PANEL, MARGIN = 2.2, 1.1  # inches; the margin is for titles and names
SEVERAL, NOTHING = "#222222", "#ffffff"  # for what several allow, and none
MAX_GRID = 64  # rows or columns of a panel up to which single pairs are outlined
MAX_TITLE = 33
SHORT = 12  # letters of names of which two stand beside each other


def draw_patterns(patterns: Sequence[Pattern | str], length: int) -> Figure:
    """Draw patterns beside each other, one panel for each of a pattern's kinds of heads.

    Rows are queries, columns keys. The members of a union have a colour each; a pair that several
    of them allow is black.

    Args:
        patterns: The patterns, or their texts.
        length: Number of tokens.

    Returns:
        The figure, which :func:`save_figure` writes.

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
    read = [parse_pattern(one) if isinstance(one, str) else one for one in patterns]
    panels = [(pattern, head) for pattern in read for head in range(pattern.period)]
    columns = min(max(1, int(PAGE / PANEL)), len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(columns * PANEL + 0.2, rows * (PANEL + MARGIN))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (pattern, head) in zip(axes, panels, strict=False):
        _draw_panel(axis, pattern, head, length)
    for axis in axes[len(panels) :]:
        axis.axis("off")
    return figure


def _draw_panel(axis: Axes, pattern: Pattern, head: int, length: int) -> None:
    """Fill one panel: which member allows each pair, and the names of their colours below."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    members = pattern.members if isinstance(pattern, Union) else (pattern,)
    names = [member.spec for member in members]
    spec = pattern.spec
    rank = torch.arange(length)[None]
    pairs = torch.cat([pairs_of(member.of_head(head), rank, rank) for member in members])
    name = spec if len(spec) <= MAX_TITLE else spec[: MAX_TITLE - 1] + "…"
    heads = f"heads {head}, {head + pattern.period}, …: " if pattern.period > 1 else ""
    share = int(pairs.any(0).sum()) / length**2
    # 0 for none, a member's number from 1, one more for several.
    number = torch.arange(1, len(names) + 1)[:, None, None]
    shown = torch.where(pairs.sum(0) > 1, len(names) + 1, (pairs * number).sum(0))
    named = [*islice(cycle(COLOURS), len(names)), SEVERAL]
    look: Any = {"cmap": ListedColormap([NOTHING, *named]), "vmin": -0.5, "vmax": len(named) + 0.5}
    look |= {"extent": (0, length, length, 0), "aspect": "auto", "interpolation": "nearest"}
    axis.imshow(shown.numpy(), **look)
    axis.set_box_aspect(1)
    if length <= MAX_GRID:
        for side in (axis.yaxis, axis.xaxis):
            side.set_ticks(range(length + 1), minor=True)
            side.grid(which="minor", color="#dddddd", linewidth=0.4)
    axis.tick_params(which="minor", length=0)
    axis.tick_params(labelsize=7)
    axis.set_title(f"{name}\n{heads}{share:.1%} of the pairs", fontsize=8)
    axis.set_xlabel("key", fontsize=8)
    axis.set_ylabel("query", fontsize=8)
    if len(names) > 1:
        more = ["several"] * bool((shown > len(names)).any())
        handles = [
            Patch(facecolor=colour, edgecolor="#888888", label=name)
            for colour, name in zip(named, (*names, *more), strict=False)
        ]
        ncols = 2 if max(map(len, names)) <= SHORT else 1
        look = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.24), "ncols": ncols}
        axis.legend(handles=handles, fontsize=8, frameon=False, **look)
