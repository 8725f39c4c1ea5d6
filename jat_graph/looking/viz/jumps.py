"""Jumps of a head as lines over the stones between two columns of tokens."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeAlias

import numpy as np

from jat_graph.looking.inspection.reports import Jump, SteppingStone, Stone, StoneReport
from jat_graph.looking.inspection.selection import Token
from jat_graph.looking.viz.figures import Axes

# One for each jump, which its ring, its way and the legend share.
JUMP_COLOURS = ("#d81b60", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#d55e00")
INK, FAINT = "#30415d", "#b8bec6"
SIDE_SIGNS = {1: "+", -1: "−"}  # of stones of high and of low scores
SIDE_LINES: dict[int, Any] = {1: "-", -1: "--"}
STONE = 0.215  # inches, of a stone in a column of them
STRONG = 0.25  # of a jump's way: the least share of a stone for its line, but for the largest
MAX_LABEL = 16

Steps: TypeAlias = "defaultdict[tuple[int, int], list[tuple[int, float]]]"  # by position and side


def draw_stones(
    axis: Axes, report: StoneReport, tokens: tuple[Token, ...], names: dict[int, str], side: float
) -> None:
    """Draw who stands on the stones that most walks go over: faint, but for the ways of jumps."""
    from matplotlib.collections import LineCollection

    rows = {token.index: row for row, token in enumerate(tokens)}
    steps: Steps = defaultdict(list)  # the jumps over each stone, and their shares of it
    for number, jump in enumerate(report.jumps):
        for step in strong_steps(jump):
            steps[step.token.index, step.side or 1].append((number, step.share or 0.0))
    stones = _chosen(report, steps, int(side / STONE))
    heights = np.linspace(0, len(tokens) - 1, len(stones) + 2)[1:-1]
    links = [
        [(rows[link.token.index], link.weight) for link in s.links if link.token.index in rows]
        for s in stones
    ]
    heaviest = max((weight for own in links for _, weight in own), default=1.0)
    for stone, own, height in zip(stones, links, heights, strict=True):
        lines = [[(0, row), (0.5, height), (1, row)] for row, _ in own]
        widths = [0.2 + 1.2 * weight / heaviest for _, weight in own]
        axis.add_collection(LineCollection(lines, linewidths=widths, color=FAINT, alpha=0.5))
        for number, share in steps[stone.token.index, stone.side]:
            jump = report.jumps[number]
            way = [(0, rows[jump.query.index]), (0.5, height), (1, rows[jump.key.index])]
            look: Any = {"color": JUMP_COLOURS[number % len(JUMP_COLOURS)], "zorder": 3}
            axis.add_collection(LineCollection([way], linewidths=[0.6 + 2.5 * share], **look))
        name = f"{names[stone.token.index]} {SIDE_SIGNS[stone.side]}"
        edge = {"fc": "white", "ec": INK, "linestyle": SIDE_LINES[stone.side], "lw": 0.8}
        box = {"boxstyle": "round,pad=0.15", **edge}
        axis.text(0.5, height, name, fontsize=7, ha="center", va="center", bbox=box, zorder=4)
    axis.set_box_aspect(1)
    axis.set(xlim=(0, 1), ylim=(len(tokens) - 0.5, -0.5), xticks=[])
    left = len(report.stones) - len(stones)
    axis.set_title("Stones" + (f" ({left} more not drawn)" if left else ""), fontsize=9)
    axis.set_xlabel("key scored high (+) or low (−)", fontsize=8)


def strong_steps(jump: Jump) -> list[SteppingStone]:
    """Return the stones that much of a jump goes over, the one of the largest share at least."""
    ranked = sorted(jump.stones, key=lambda stone: -(stone.share or 0.0))
    return [own for n, own in enumerate(ranked) if n == 0 or (own.share or 0.0) >= STRONG]


def _chosen(report: StoneReport, steps: Steps, most: int) -> list[Stone]:
    """Return the stones that jumps go over and those of most walks, in the text's order."""
    tops = [strong_steps(jump)[0] for jump in report.jumps if jump.stones]
    first = {(stone.token.index, stone.side or 1) for stone in tops}

    def rank(stone: Stone) -> tuple[bool, float]:
        own = stone.token.index, stone.side
        return own in first, sum(share for _, share in steps[own])

    chosen = sorted(report.stones, key=rank, reverse=True)[:most]
    return sorted(chosen, key=lambda stone: (stone.token.index, -stone.side))
