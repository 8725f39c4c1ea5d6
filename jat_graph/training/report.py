"""A comparison as a table, for the terminal and for Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jat_graph.training.comparison import BASE, Comparison
from jat_graph.training.statistics import Difference, Summary

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = ("dev set", "metric", "arm", "mean", "std", "difference", "95 % interval", "p")
_NOTHING = "-"


def comparison_table(comparison: Comparison) -> Table:
    """Draw a comparison.

    Args:
        comparison: The comparison.

    Returns:
        A table with a row for each dev set, metric and arm; the verdicts are its caption.
    """
    from rich.table import Table

    count = len(comparison.seeds)
    title = f"{comparison.task}, {count} seed{'' if count == 1 else 's'}"
    table = Table(title=title, caption="\n".join(comparison.verdicts), caption_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in _COLUMNS[:3] else "right")
    for row in _rows(comparison):
        table.add_row(*row, end_section=row[2] == list(comparison.runs)[-1])
    return table


def comparison_markdown(comparison: Comparison) -> str:
    """Write a comparison down as a Markdown table, followed by its verdicts.

    Args:
        comparison: The comparison.

    Returns:
        Lines of Markdown.
    """
    lines = [_COLUMNS, ("---",) * len(_COLUMNS), *_rows(comparison)]
    table = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([*table, "", *(f"- {sentence}" for sentence in comparison.verdicts)])


def _rows(comparison: Comparison) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for split, metric in comparison.measures:
        for arm in comparison.runs:
            summary = comparison.summary(arm, split, metric)
            difference = None if arm == BASE else comparison.difference(arm, split, metric)
            rows.append((split, metric, arm, *_spread(summary), *_change(difference)))
    return rows


def _spread(summary: Summary | None) -> tuple[str, str]:
    if summary is None:
        return "undefined", _NOTHING
    return f"{summary.mean:.4f}", _NOTHING if summary.std is None else f"{summary.std:.4f}"


def _change(difference: Difference | None) -> tuple[str, str, str]:
    if difference is None:
        return _NOTHING, _NOTHING, _NOTHING
    change = f"{difference.mean:+.4f}"
    if difference.low is None or difference.high is None or difference.p_value is None:
        return change, _NOTHING, _NOTHING
    interval = f"{difference.low:+.4f} to {difference.high:+.4f}"
    return change, interval, f"{difference.p_value:.3f}"
