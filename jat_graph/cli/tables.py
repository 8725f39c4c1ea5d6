"""Tables of jump heads, each narrow enough for 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from jat_graph.directions import named

if TYPE_CHECKING:
    from jat_graph.config import JatConfig
    from jat_graph.inspection.reports import (
        HeadReport,
        Inspection,
        Jump,
        SteppingStone,
        Stone,
        StoneReport,
        Token,
    )

_SIGNS = {1: "+", -1: "−"}  # of stones of unusually high and unusually low scores
_BELOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MANY = 2**31  # more heads than any model: the config's own heads are wanted, whatever the model
MOST_LINKS = 12  # tokens on a stone that are named


def head_tables(report: Inspection) -> list[Table]:
    """What was found: a table for heads, one for jumps and, where there are some, one for stones.

    Each is narrow enough for 80 columns.
    """
    from jat_graph.inspection.reports import StoneReport

    place, theta = ("layer", "head"), ["θ"] * (report.config.strength is not None)
    heads = [head for head in report.heads if isinstance(head, StoneReport)]
    if heads:
        numbers = [(_stone_head_cells(head), [()]) for head in heads]
        jumps = [
            (_place(head), [jump_cells(j, f"{j.weight:.0%}") for j in head.jumps]) for head in heads
        ]
        stones = [(_place(head), map(_stone_cells, head.stones)) for head in heads]
        return [
            _table((*place, "t", "linked", "stones", "size", *theta), numbers),
            _table((*place, "jump", "P", "gain", "stepping stones"), jumps),
            _table((*place, "stone", "walks", "who stands on it"), stones),
        ]
    columns = *place, "ρ", "density", "mean weight", *theta
    return [
        _table(columns, [(_head_cells(head), [()]) for head in report.heads]),
        _table(
            (*place, "jump", "gain", "stepping stones"),
            [(_place(head), map(jump_cells, head.jumps)) for head in report.heads],
        ),
    ]


def _table(
    columns: tuple[str, ...],
    heads: Sequence[tuple[tuple[str, ...], Iterable[tuple[str, ...]]]],
) -> Table:
    """Show the rows of each head, whose own cells stand in its first."""
    table = Table(*columns)
    for own, found in heads:
        rows = list(found) or [("none",)]
        for place, cells in enumerate(rows):
            first = own if place == 0 else ("",) * len(own)
            table.add_row(*first, *cells, end_section=place == len(rows) - 1)
    return table


def _place(head: HeadReport) -> tuple[str, ...]:
    return str(head.layer), str(head.head)


def _head_cells(head: HeadReport) -> tuple[str, ...]:
    numbers = f"{head.threshold:.3g}", f"{head.density:.1%}", f"{head.mean_weight:.2f}"
    return *_place(head), *numbers, *_strengths(head)


def _stone_head_cells(head: StoneReport) -> tuple[str, ...]:
    numbers = f"{head.linked:.0%}", str(head.num_stones), f"{head.median_size:g}"
    return *_place(head), f"{head.threshold:.3g}", *numbers, *_strengths(head)


def _strengths(head: HeadReport) -> list[str]:
    """θ of queries, keys and values, hop by hop; nothing without."""
    hops = head.strengths or ()
    return ["; ".join(" ".join(f"{x:+.2g}" for x in hop) for hop in hops)] * bool(hops)


def jump_cells(jump: Jump, *weight: str) -> tuple[str, ...]:
    """A jump with its tokens, its weight if it is given, its gain and its stepping stones."""
    stones = [_stone_name(stone) for stone in jump.stones[:3]]
    left, hidden = len(jump.stones) - len(stones), jump.hidden_stones
    more = [f"{left} more"] * bool(left) + [f"{hidden} special"] * bool(hidden)
    pair = f"{_token(jump.query)} → {_token(jump.key)}"
    return escape(pair), *weight, f"{jump.gain:+.1%}", escape(", ".join(stones + more))


def _stone_name(stone: SteppingStone) -> str:
    """A stepping stone with its scores, or its side and its share."""
    if stone.side is None:
        return f"{_token(stone.token)} ({stone.query_score:+.1f}, {stone.key_score:+.1f})"
    return f"{_token(stone.token)} {_SIGNS[stone.side]} {stone.share:.0%}"


def _token(token: Token) -> str:
    """A token with its position, as pencil₆."""
    return named(token.text) + str(token.index).translate(_BELOW)


def _stone_cells(stone: Stone) -> tuple[str, ...]:
    strongest = sorted(stone.links, key=lambda link: -link.weight)[:MOST_LINKS]
    links = [f"{_token(x.token)} {x.weight:.2f}" for x in stone.links if x in strongest]
    left = len(stone.links) - len(links)
    more = [f"{left} more"] * bool(left) + [f"{stone.hidden_links} not shown"] * bool(
        stone.hidden_links
    )
    name = f"{_token(stone.token)} {_SIGNS[stone.side]}"
    return escape(name), f"{stone.share:.1%}", escape(", ".join(links + more))


def threshold_table(config: JatConfig) -> Table:
    """Show the thresholds, a line for each head."""
    rows = config.graph.threshold if isinstance(config.graph.threshold, tuple) else ()
    layers = config.layers or range(len(rows))
    count = len(rows[0]) if rows and config.heads == "all" else MANY
    heads = config.head_indices(count) if rows else ()
    table = Table("layer", "head", "ρ")
    for layer, row in zip(layers, rows, strict=True):
        for head, value in zip(heads, row, strict=True):
            table.add_row(str(layer), str(head), f"{value:.3g}", end_section=head == heads[-1])
    return table
