"""The panel of one head's stones: tokens on both sides, stones between, and who stands on which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from jat_graph.inspection.reports import Jump, Stone, StoneReport, Token

JUMP_COLOUR = "#d81b60"
SIDE_COLOURS = {1: "#0072b2", -1: "#e69f00"}  # of stones of high and of low scores
SIDE_SIGNS = {1: "+", -1: "−"}
LEAST_STONES = 8  # that are drawn, if there are so many; or else as many as tokens


def draw_stones(
    axis: Axes, report: StoneReport, tokens: tuple[Token, ...], names: Mapping[int, str]
) -> None:
    """Draw who stands on the stones that most walks go over, and the ways that the jumps take.

    The wider a line, the stronger the link, or the larger the share of the jump.
    """
    rows = {token.index: row for row, token in enumerate(tokens)}
    stones = _chosen(report, max(LEAST_STONES, len(tokens)))
    heights = np.linspace(0, len(tokens) - 1, len(stones) + 2)[1:-1]
    heaviest = max((link.weight for stone in stones for link in stone.links), default=1.0)
    for stone, height in zip(stones, heights, strict=True):
        for link in stone.links:
            row, colour = rows[link.token.index], SIDE_COLOURS[stone.side]
            width = 0.4 + 2 * link.weight / heaviest
            axis.plot([0, 0.5, 1], [row, height, row], color=colour, alpha=0.4, linewidth=width)
        for jump, share in _steps(report.jumps, stone):
            way = [rows[jump.query.index], height, rows[jump.key.index]]
            axis.plot([0, 0.5, 1], way, color=JUMP_COLOUR, linewidth=3 * share, zorder=3)
        name = f"{names[stone.token.index]} {SIDE_SIGNS[stone.side]}"
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": SIDE_COLOURS[stone.side]}
        axis.text(0.5, height, name, fontsize=7, ha="center", va="center", bbox=box, zorder=4)
    axis.set_box_aspect(1)
    axis.set_anchor("S")  # beside matrices, which their colour bars push down
    axis.set(xlim=(0, 1), ylim=(len(tokens) - 0.5, -0.5), xticks=[])
    left = len(report.stones) - len(stones)
    axis.set_title("Stones" + (f" (and {left} more)" if left else ""), fontsize=10)
    axis.set_xlabel("i → key scored high (+) or low (−) → k", fontsize=9)


def _chosen(report: StoneReport, most: int) -> list[Stone]:
    """Return the stones of the jumps and those that most walks go over, in the text's order."""
    stones = sorted(report.stones, key=lambda stone: not _steps(report.jumps, stone))
    return sorted(stones[:most], key=lambda stone: (stone.token.index, -stone.side))


def _steps(jumps: Iterable[Jump], stone: Stone) -> list[tuple[Jump, float]]:
    """Return the jumps that go over a stone, and their shares of it."""
    return [
        (jump, step.share or 0.0)
        for jump in jumps
        for step in jump.stones
        if (step.token, step.side) == (stone.token, stone.side)
    ]
