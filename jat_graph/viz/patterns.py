"""A picture of an attention pattern: which query may attend to which key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from jat_graph.attention.patterns.dense import pattern_rows
from jat_graph.checks.pictures import check_pattern_tokens, is_layer
from jat_graph.patterns import Pattern, Union, parse_pattern
from jat_graph.viz.figures import Panel, colours_of, draw_panel, new_figure
from jat_graph.viz.layers import layer_panels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL, MARGIN = 3.0, 1.1  # inches; the margin is for titles and names
MAX_TITLE = 40


def draw_patterns(patterns: Sequence[Pattern | str], length: int) -> Figure:
    """Draw patterns beside each other, one panel for each of a pattern's kinds of heads.

    Rows are queries, columns keys. The members of a union have a colour each; a pair that several
    of them allow is black. A layer that does not read token by token can stand for a pattern, too,
    as a text: of ``"memory-compressed:3:3:causal"`` the picture shows the tokens in the windows of
    the slots that a query reads, of ``"area:3"`` the areas, and of ``"block:5"`` tokens and blocks,
    in both directions.

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
    check_pattern_tokens("length", length)
    if not patterns:
        raise ValueError("patterns must be at least one, got none")
    panels = [panel for pattern in patterns for panel in _panels(pattern, length)]
    columns = min(4, len(panels))
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
            return layer_panels(pattern, length)
        pattern = parse_pattern(pattern)
    members = pattern.members if isinstance(pattern, Union) else (pattern,)
    spec = pattern.spec
    name = spec if len(spec) <= MAX_TITLE else spec[: MAX_TITLE - 1] + "…"
    panels = []
    for head in range(pattern.period):
        share = pattern.num_edges(length, head) / length**2
        heads = f"heads {head}, {head + pattern.period}, …: " if pattern.period > 1 else ""
        pairs = [
            pattern_rows(
                member.of_head(head),
                valid=None,
                num_queries=length,
                num_keys=length,
                device=torch.device("cpu"),
            )[0, 0]
            for member in members
        ]
        title = f"{name}\n{heads}{share:.1%} of the pairs"
        panels.append(
            Panel(title, colours_of(torch.stack(pairs)), tuple(member.spec for member in members))
        )
    return panels
