"""A picture of an attention pattern: which query may attend to which key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING

import numpy as np
import torch

from jat_graph.attention.patterns.dense import pattern_rows
from jat_graph.patterns import Pattern, Union
from jat_graph.patterns.base import check_count
from jat_graph.viz.heads import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which all readers tell apart; black stands for what several allow.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")
SEVERAL, NOTHING = "#222222", "#ffffff"
PANEL, MARGIN = 3.0, 1.1  # inches; the margin is for titles and names
MAX_TITLE = 40
MAX_GRID = 64  # tokens up to which single pairs are outlined
MOST_TOKENS = 4096


def draw_patterns(patterns: Sequence[Pattern], length: int) -> Figure:
    """Draw patterns beside each other, one panel for each of a pattern's kinds of heads.

    Rows are queries, columns keys. The members of a union have a colour each; a pair that several
    of them allow is black.

    Args:
        patterns: The patterns.
        length: Number of tokens.

    Returns:
        A matplotlib figure that belongs to no window; pass it to :func:`save_figure`.

    Raises:
        ValueError: If there is no pattern, or the length is below 1 or too large to be seen.
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).

    Reference:
        Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", Figure 1.
    """
    check_count("length", length)
    if length > MOST_TOKENS:
        raise ValueError(f"length must be at most {MOST_TOKENS} to be drawn, got {length}")
    if not patterns:
        raise ValueError("patterns must be at least one, got none")
    panels = [(pattern, head) for pattern in patterns for head in range(pattern.period)]
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(columns * PANEL + 0.2, rows * (PANEL + MARGIN), 0.0)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (pattern, head) in zip(axes, panels, strict=False):
        _draw_panel(axis, pattern, head, length)
    for axis in axes[len(panels) :]:
        axis.axis("off")
    return figure


def _draw_panel(axis: Axes, pattern: Pattern, head: int, length: int) -> None:
    """Fill one panel: the pairs, a title, and the members' names below."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    members = pattern.members if isinstance(pattern, Union) else (pattern,)
    kinds = _kinds(members, head, length)
    colours = [NOTHING, *islice(cycle(COLOURS), len(members)), SEVERAL]
    axis.imshow(
        kinds,
        cmap=ListedColormap(colours),
        vmin=-0.5,
        vmax=len(colours) - 0.5,
        interpolation="nearest",
        extent=(0, length, length, 0),
    )
    if length <= MAX_GRID:
        axis.set_xticks(range(length + 1), minor=True)
        axis.set_yticks(range(length + 1), minor=True)
        axis.grid(which="minor", color="#dddddd", linewidth=0.4)
        axis.tick_params(which="minor", length=0)
    axis.tick_params(labelsize=7)
    axis.set_title(_title(pattern, head, length), fontsize=9)
    axis.set_xlabel("key", fontsize=8)
    axis.set_ylabel("query", fontsize=8)
    if len(members) > 1:
        names = [member.spec for member in members]
        names += ["several"] if (kinds == len(members) + 1).any() else []
        axis.legend(
            handles=[
                Patch(facecolor=colour, edgecolor="#888888", label=name)
                for colour, name in zip(
                    (*colours[1 : len(members) + 1], SEVERAL), names, strict=False
                )
            ],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncols=2,
            fontsize=7,
            frameon=False,
        )


def _kinds(members: Sequence[Pattern], head: int, length: int) -> np.ndarray:
    """Return 0 where nothing is allowed, a member's number from 1, and one more for several."""
    pairs = torch.stack(
        [
            pattern_rows(
                member.of_head(head),
                valid=None,
                num_queries=length,
                num_keys=length,
                heads=1,
                device=torch.device("cpu"),
            )[0, 0]
            for member in members
        ]
    )
    number = torch.arange(1, len(members) + 1)[:, None, None]
    alone = (pairs * number).sum(0)
    return torch.where(pairs.sum(0) > 1, len(members) + 1, alone).numpy()


def _title(pattern: Pattern, head: int, length: int) -> str:
    """Name the pattern, the heads that have it, and the share of pairs."""
    spec = pattern.spec
    name = spec if len(spec) <= MAX_TITLE else spec[: MAX_TITLE - 1] + "…"
    share = pattern.num_edges(length, head) / length**2
    heads = f"heads {head}, {head + pattern.period}, …: " if pattern.period > 1 else ""
    return f"{name}\n{heads}{share:.1%} of the pairs"
