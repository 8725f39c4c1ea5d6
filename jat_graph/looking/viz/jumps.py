"""Jumps of a head as lines: over the stones between two columns of tokens, or one of them alone."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeAlias

import numpy as np

from jat_graph.looking.directions import named
from jat_graph.looking.inspection.reports import HeadView, Jump, SteppingStone, Stone, StoneReport
from jat_graph.looking.inspection.selection import Token
from jat_graph.looking.viz.figures import (
    COLUMN,
    NO_BREAK,
    Axes,
    Figure,
    new_figure,
    set_caption,
    short_label,
)

# One for each jump, which its ring, its way and the legend share.
JUMP_COLOURS = ("#d81b60", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#d55e00")
INK, FAINT = "#30415d", "#b8bec6"
SIDE_SIGNS = {1: "+", -1: "−"}  # of stones of high and of low scores
SIDE_LINES: dict[int, Any] = {1: "-", -1: "--"}
STONE = 0.215  # inches, of a stone in a column of them
STRONG = 0.25  # of a jump's way: the least share of a stone for its line, but for the largest
MOST_BETWEEN = 8  # stones of a jump that is drawn alone
ROW = 0.5  # inches, of one of these
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


def draw_jump(view: HeadView) -> Figure:
    """Draw one jump alone: the token that looks, the keys or stones between, and the one looked at.

    A line is as wide as the stone's share of the way or, where keys vote, as the product of both
    scores; it is dashed where both tokens score the key low. Below its name stand the two scores,
    that of the token that looks first.

    Args:
        view: What the head did, from :func:`jat_graph.inspection.view_head` with ``jump``; of
            several jumps the first is drawn.

    Returns:
        The figure, which :func:`save_figure` writes; its label is its caption.

    Raises:
        ValueError: If the view has no jump.
        ImportError: If matplotlib is missing (``pip install 'jat_graph[viz]'``).

    Reference:
        Zhou et al. 2022, Section 3: *computer* and *pencil* joined through *book*.
    """
    if not view.report.jumps:
        raise ValueError("view must have a jump to draw, got none")
    jump = view.report.jumps[0]
    sizes = [abs(s.query_score * s.key_score) if s.share is None else s.share for s in jump.stones]
    order = sorted(range(len(sizes)), key=lambda n: -sizes[n])[:MOST_BETWEEN]
    stones = [jump.stones[n] for n in order]
    widths = [sizes[n] for n in order]
    ends = [_label(own) for own in (jump.query, jump.key)]
    pair = f"{ends[0]} → {ends[1]}, {100 * jump.gain:+.1f} points".replace(" ", NO_BREAK)
    heading = f"Layer {view.report.layer}, head {view.report.head}: {pair}"
    figure = new_figure(COLUMN, ROW * max(2, len(stones)) + 0.6, heading=heading, size=9)
    axis = figure.subplots()
    middle = (len(stones) - 1) / 2
    for n, (stone, size) in enumerate(zip(stones, widths, strict=True)):
        style: Any = {"color": JUMP_COLOURS[0], "linestyle": SIDE_LINES[_side(stone)]}
        style["linewidth"] = 0.6 + 3 * size / (max(widths) or 1.0)
        axis.plot([0, 0.5, 1], [middle, n, middle], **style)
        sign = "" if stone.side is None else f" {SIDE_SIGNS[stone.side]}"
        said = _label(stone.token) + sign + (f", {stone.share:.0%}" if stone.share else "")
        scores = f"{stone.query_score:+.1f} and {stone.key_score:+.1f}"
        _write(axis, 0.5, n, f"{said}\n{scores}", INK)
    for x, name in zip((0, 1), ends, strict=True):
        _write(axis, x, middle, name, JUMP_COLOURS[0])
    axis.set(xlim=(-0.22, 1.22), ylim=(max(1, len(stones)) - 0.4, -0.6))
    axis.set_axis_off()
    _add_key(figure, jump.stones)
    report = view.report
    left = len(jump.stones) - len(stones) + jump.hidden_stones
    what = "keys that voted" if jump.stones and jump.stones[0].share is None else "stones"
    said = (
        f"Layer {report.layer}, head {report.head}: {ends[0]} gives {ends[1]} "
        f"{jump.before:.2%} of its attention without the jump and {jump.after:.2%} with it. "
        f"Between them stand the {what}, with the two tokens' scores for each"
    )
    set_caption(figure, said + (f"; {left} more are not drawn." if left else "."))
    return figure


def _side(stone: SteppingStone) -> int:
    """Whether both tokens score a key high, 1, or low, -1."""
    return stone.side or (-1 if stone.query_score < 0 else 1)


def _label(token: Token) -> str:
    return named(short_label(token.text, MAX_LABEL)) + f" {token.index}"


def _write(axis: Axes, x: float, y: float, text: str, edge: str) -> None:
    """Write a text in a box that hides the lines behind it."""
    box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": edge, "lw": 0.8}
    axis.text(x, y, text, fontsize=8, ha="center", va="center", bbox=box, zorder=3)


def _add_key(figure: Figure, stones: tuple[SteppingStone, ...]) -> None:
    """Say which lines are whole and dashed, and what the widest have most of."""
    from matplotlib.lines import Line2D

    meaning = "share" if any(stone.share for stone in stones) else "scores"
    words = {1: f"key that both score high (wider: larger {meaning})", -1: "both score low"}
    look: Any = {"color": JUMP_COLOURS[0]}
    sides = sorted({_side(stone) for stone in stones}, reverse=True)
    handles = [Line2D([], [], linestyle=SIDE_LINES[n], label=words[n], **look) for n in sides]
    figure.legend(handles=handles, loc="outside lower center", fontsize=8, frameon=False)
