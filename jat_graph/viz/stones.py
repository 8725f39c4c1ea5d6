"""The panel of one head's stones: tokens on both sides, stones between, and who stands on which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from jat_graph.inspection import Jump, Stone, StoneReport, Token

JUMP_COLOUR = "#d81b60"
SIDE_COLOURS = {1: "#0072b2", -1: "#e69f00"}  # of stones of high and of low scores
SIDE_SIGNS = {1: "+", -1: "−"}
LEAST_STONES, MOST_STONES = 8, 24  # that are drawn; between, as many as tokens

Steps: TypeAlias = "defaultdict[tuple[int, int], list[tuple[Jump, float]]]"  # by position and side


def draw_stones(
    axis: Axes, report: StoneReport, tokens: tuple[Token, ...], names: Mapping[int, str]
) -> None:
    """Draw who stands on the stones that most walks go over, and how the jumps go over them."""
    rows = {token.index: row for row, token in enumerate(tokens)}
    steps: Steps = defaultdict(list)  # the jumps over each stone, and their shares of it
    for jump in report.jumps:
        for step in jump.stones:
            steps[step.token.index, step.side or 1].append((jump, step.share or 0.0))
    stones = _chosen(report, steps, min(max(LEAST_STONES, len(tokens)), MOST_STONES))
    heights = np.linspace(0, len(tokens) - 1, len(stones) + 2)[1:-1]
    ways = [
        {rows[link.token.index]: link.weight for link in stone.links if link.token.index in rows}
        for stone in stones
    ]
    heaviest = max((weight for links in ways for weight in links.values()), default=1.0)
    alpha = min(0.4, 60 / max(1, sum(map(len, ways))))  # many lines would hide each other
    for stone, links, height in zip(stones, ways, heights, strict=True):
        _draw_ways(
            axis,
            [(row, height, row) for row in links],
            [0.3 + 2 * weight / heaviest for weight in links.values()],
            color=SIDE_COLOURS[stone.side],
            alpha=alpha,
        )
        over = steps[stone.token.index, stone.side]
        _draw_ways(
            axis,
            [(rows[jump.query.index], height, rows[jump.key.index]) for jump, _ in over],
            [0.5 + 2.5 * share for _, share in over],
            color=JUMP_COLOUR,
            zorder=3,
        )
        name = f"{names[stone.token.index]} {SIDE_SIGNS[stone.side]}"
        box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": SIDE_COLOURS[stone.side]}
        axis.text(0.5, height, name, fontsize=7, ha="center", va="center", bbox=box, zorder=4)
    axis.set_box_aspect(1)
    axis.set_anchor("S")  # beside matrices, which their colour bars push down
    axis.set(xlim=(0, 1), ylim=(len(tokens) - 0.5, -0.5), xticks=[])
    left = len(report.stones) - len(stones)
    axis.set_title("Stones" + (f" ({left} more not drawn)" if left else ""), fontsize=10)
    axis.set_xlabel("i → key scored high (+) or low (−) → k", fontsize=9)


def _draw_ways(
    axis: Axes, ways: list[tuple[float, float, float]], widths: list[float], **style: Any
) -> None:
    """Draw lines from the left over the middle to the right, at three heights."""
    from matplotlib.collections import LineCollection

    lines = [list(zip((0, 0.5, 1), way, strict=True)) for way in ways]
    axis.add_collection(LineCollection(lines, linewidths=widths, **style))


def _chosen(report: StoneReport, steps: Steps, most: int) -> list[Stone]:
    """Return the main stone of each jump and those that most walks go over, in the text's order."""
    tops = [max(jump.stones, key=lambda s: s.share or 0.0) for jump in report.jumps if jump.stones]
    first = {(stone.token.index, stone.side or 1) for stone in tops}

    def rank(stone: Stone) -> tuple[bool, float]:
        own = stone.token.index, stone.side
        return own in first, sum(share for _, share in steps[own])

    chosen = sorted(report.stones, key=rank, reverse=True)[:most]
    return sorted(chosen, key=lambda stone: (stone.token.index, -stone.side))
