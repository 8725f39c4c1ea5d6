"""Tables of jump heads, and of heads that read by clusters, each narrow enough for 80 columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from jat_graph.looking.directions import named

if TYPE_CHECKING:
    from jat_graph.jumps.config import JatConfig
    from jat_graph.looking import inspection

_SIGNS = {1: "+", -1: "−"}  # of stones of unusually high and unusually low scores
_BELOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
MOST_LINKS, MOST_STONES = 12, 3  # that are named, of tokens on a stone and stones of a jump
MOST_TOKENS = 12  # of a head that reads by clusters, those that find most


def head_tables(report: inspection.Inspection) -> list[Table | str]:
    """Show what was found: tables of heads, of jumps and, where there are some, of stones."""
    from jat_graph.looking.inspection import StoneReport

    has_stones = any(isinstance(head, StoneReport) for head in report.heads)
    has_strengths = report.config.strength is not None
    of_heads = ("t", "linked", "stones", "size") if has_stones else ("ρ", "density", "mean weight")
    numbers = Table("layer", "head", *of_heads, *["θ"] * has_strengths)
    jumps = Table("layer", "head", "jump", *["P"] * has_stones, "points", "stepping stones")
    stones = Table("layer", "head", "stone", "walks", "tokens on it")
    for head in report.heads:
        said = [f"{head.density:.1%}", f"{head.mean_weight:.2f}"]
        if isinstance(head, StoneReport):
            said = [f"{head.linked:.0%}", str(head.num_stones), f"{head.median_size:g}"]
            _add_rows(stones, head, [_stone_cells(stone) for stone in head.stones])
        if head.strengths:
            hops = [" ".join(f"{number:+.2g}" for number in hop) for hop in head.strengths]
            said.append("; ".join(hops))
        _add_rows(numbers, head, [[f"{head.threshold:.3g}", *said]])
        _add_rows(jumps, head, [jump_cells(jump, has_stones) for jump in head.jumps])
    theta = "θ: strengths of queries, keys and values; below 0 tokens move apart."
    return [numbers, jumps, *[stones] * has_stones, *[theta] * has_strengths]


def cluster_tables(report: inspection.ClusterInspection) -> list[Table | str]:
    """Show what was found: a table of heads, and one of tokens and the keys that they find."""
    from jat_graph.looking.inspection.clusters import READ_DENSELY, READ_EXACTLY

    numbers = Table("layer", "head", "keys read exactly", "attention read exactly", "tv")
    tokens = Table("layer", "head", "token", "exact", "keys that it finds in clusters")
    for head in report.heads:
        _add_rows(numbers, head, [[f"{x:.1%}" for x in (head.share, head.exact, head.tv)]])
        found = sorted((own for own in head.tokens if own.keys), key=lambda own: -own.keys[0].share)
        rows = []
        for own in found[:MOST_TOKENS]:
            keys = ", ".join(f"{_token(key.token)} {key.share:.1%}" for key in own.keys)
            rows.append([escape(_token(own.token)), f"{own.exact:.0%}", escape(keys)])
        if len(found) > MOST_TOKENS:
            rows.append([f"{len(found) - MOST_TOKENS} more"])
        _add_rows(tokens, head, rows)
    few = [head for head in report.heads if head.dense]
    said = READ_EXACTLY if all(head.share == 1 for head in few) else READ_DENSELY
    return [*[said] * bool(few), numbers, tokens]


def _add_rows(table: Table, head: Any, rows: list[list[str]]) -> None:
    """Add the rows of a head, with its layer and number in the first."""
    place = str(head.layer), str(head.head)
    for cells in rows or [["none"]]:
        table.add_row(*place, *cells)
        place = "", ""
    table.add_section()


def ranked_table(reports: Sequence[Any], by_jump: bool = False) -> Table:
    """Show one line for each head, the first one to look at first, with its strongest jump."""
    # Over several texts it is the mean of what a head changes, and the strongest jump of all texts.
    heads: dict[tuple[int, int], list[Any]] = {}
    for head in (head for report in reports for head in report.heads):
        heads.setdefault((head.layer, head.head), []).append(head)
    from jat_graph.looking.inspection import ClusterReport

    is_clustered = isinstance(reports[0].heads[0], ClusterReport)
    table = Table("layer", "head", "change", "jump", "weight", "points")
    if is_clustered:
        table = Table("layer", "head", "tv", "attention read exactly", "keys read exactly")
    lines: list[tuple[Any, list[str]]] = []
    for place, own in heads.items():
        cells = [*map(str, place)]
        if is_clustered:
            means = [fmean(getattr(x, name) for x in own) for name in ("tv", "exact", "share")]
            lines.append((means[0], cells + [f"{mean:.1%}" for mean in means]))
            continue
        changes = [head.change for head in own if head.change is not None]
        cells.append(f"{fmean(changes):.1%}" if changes else "-")
        jumps = [head.jumps[0] for head in own if head.jumps]
        best = max(jumps, key=lambda jump: (jump.gain, jump.weight), default=None)
        cells += jump_cells(best, has_weight=True)[:-1] if best else ["none"]
        worth: Any = fmean(changes) if changes else 0.0
        if by_jump:
            worth = (best.gain, best.weight) if best else (-math.inf, 0.0)
        lines.append((worth, cells))
    for _, cells in sorted(lines, key=lambda line: line[0], reverse=True):
        table.add_row(*cells)
    return table


def jump_cells(jump: inspection.Jump, has_weight: bool = False) -> list[str]:
    """A jump with its tokens, its weight if it is wanted, its gain and its stepping stones."""
    said = [
        f"{_token(stone.token)} ({stone.query_score:+.1f}, {stone.key_score:+.1f})"
        if stone.side is None
        else f"{_token(stone.token)} {_SIGNS[stone.side]} {stone.share:.0%}"
        for stone in jump.stones[:MOST_STONES]
    ]
    left = len(jump.stones) - len(said)
    hidden = jump.hidden_stones
    said += [f"{left} more"] * bool(left) + [f"{hidden} special"] * bool(hidden)
    pair = f"{_token(jump.query)} → {_token(jump.key)}"
    weight = [f"{jump.weight:.0%}"] * has_weight
    return [escape(pair), *weight, f"{100 * jump.gain:+.1f}", escape(", ".join(said))]


def _stone_cells(stone: inspection.Stone) -> list[str]:
    strongest = sorted(stone.links, key=lambda link: -link.weight)[:MOST_LINKS]
    said = [f"{_token(x.token)} {x.weight:.2f}" for x in stone.links if x in strongest]
    left = len(stone.links) - len(said)
    hidden = stone.hidden_links
    said += [f"{left} more"] * bool(left) + [f"{hidden} not shown"] * bool(hidden)
    name = f"{_token(stone.token)} {_SIGNS[stone.side]}"
    return [escape(name), f"{stone.share:.1%}", escape(", ".join(said))]


def _token(token: inspection.Token) -> str:
    """A token with its position, as pencil₅."""
    return named(token.text) + str(token.index).translate(_BELOW)


def calibrated_lines(config: JatConfig) -> list[str]:
    """Show what was measured, a line for each layer: ρ of its heads, or the keys of clusters."""
    graph: Any = config.graph
    if graph.kind == "clusters":
        tables = zip(graph.keys, graph.dense_below, strict=True)
        cells = (zip(*both, strict=True) for both in tables)
        name = "keys"
        rows = [["dense" if x == math.inf else str(k) for k, x in r] for r in cells]
    else:
        name = "ρ"
        rows = [[f"{value:.3g}" for value in row] for row in graph.threshold]
    layers = config.layers or range(len(rows))
    return [f"layer {n}: {name} = {', '.join(r)}" for n, r in zip(layers, rows, strict=True)]
