"""A comparison as a table, for the terminal and for Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jat_graph.lab.comparison import BASE, Comparison
from jat_graph.lab.statistics import Difference, Summary

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = ("score", "arm", "mean ± std", "change", "95 % interval", "p")
_NOTHING = "-"


def comparison_table(comparison: Comparison) -> Table:
    """Draw a comparison, at most 80 columns wide if the names are short.

    Args:
        comparison: The comparison.

    Returns:
        A table with a row for each dev set, metric and arm; the verdicts are its caption.
    """
    from rich import box
    from rich.table import Table

    count = len(comparison.seeds)
    table = Table(
        title=f"{comparison.task}, {count} seed{'' if count == 1 else 's'}",
        caption="\n".join(comparison.verdicts),
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    for column in _COLUMNS:
        is_name = column in _COLUMNS[:2]
        table.add_column(column, justify="left" if is_name else "right", no_wrap=not is_name)
    last = list(comparison.runs)[-1]
    for row in _rows(comparison):
        table.add_row(*row, end_section=row[1] == last)
    return table


def comparison_markdown(comparison: Comparison) -> str:
    """Write a comparison down as a Markdown table, followed by its verdicts.

    Args:
        comparison: The comparison.

    Returns:
        Lines of Markdown.
    """
    lines = [_COLUMNS, ("---", "---", "---:", "---:", "---:", "---:"), *_rows(comparison)]
    table = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([*table, "", *(f"- {sentence}" for sentence in comparison.verdicts)])


def _rows(comparison: Comparison) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for split, metric in comparison.measures:
        for arm in comparison.runs:
            summary = comparison.summary(arm, split, metric)
            difference = None if arm == BASE else comparison.difference(arm, split, metric)
            rows.append((f"{split} {metric}", arm, _spread(summary), *_change(difference)))
    return rows


def _spread(summary: Summary | None) -> str:
    if summary is None:
        return "undefined"
    return f"{summary.mean:.4f}" + ("" if summary.std is None else f" ± {summary.std:.4f}")


def _change(difference: Difference | None) -> tuple[str, str, str]:
    if difference is None:
        return _NOTHING, _NOTHING, _NOTHING
    change = f"{difference.mean:+.4f}"
    if difference.low is None or difference.high is None or difference.p_value is None:
        return change, _NOTHING, _NOTHING
    interval = f"{difference.low:+.4f} to {difference.high:+.4f}"
    return change, interval, f"{difference.p_value:.3f}"
