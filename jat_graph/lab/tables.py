"""Tables of texts, for a page and for a terminal: the one place that writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.table import Table

NOTHING = "-"
SECONDS = "seconds"  # what the time of training is called among the metrics

# Metrics that are shown as they are; all others are shares, shown in percent as papers do.
_NO_SHARES = (SECONDS, "perplexity", "bits_per_")


def is_share(metric: str) -> bool:
    """Tell whether a metric is shown in percent, as papers do."""
    return not metric.startswith(_NO_SHARES)


def show_score(value: float, metric: str) -> str:
    """A score, or its spread, in its metric's unit."""
    if metric == SECONDS:
        return f"{value:.1f}"
    return f"{100 * value:.1f}" if is_share(metric) else f"{value:.3g}"


def show_change(value: float, metric: str) -> str:
    """A difference of scores, with its sign; of seconds the share of more time."""
    if metric == SECONDS:
        return f"{100 * value:+.0f} %"
    return f"{100 * value:+.1f}" if is_share(metric) else f"{value:+.3f}"


def markdown(frame: DataFrame, left: Sequence[str]) -> str:
    """A table in Markdown; columns named in ``left`` hold words, the others numbers."""
    align = ["left" if column in left else "right" for column in frame.columns]
    text: str = frame.to_markdown(index=False, colalign=align, disable_numparse=True)
    return text


def terminal_table(frame: DataFrame, left: Sequence[str], **settings: Any) -> Table:
    """A table for a terminal of 80 columns; numbers are never broken, titles between words."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, **settings)
    for column in frame.columns:
        is_word, widest = column in left, max(map(len, frame[column]), default=0)
        title = column if len(column) <= widest else column.replace(" ", "\n")
        longest = max((len(word) for cell in frame[column] for word in cell.split()), default=0)
        if is_word:
            table.add_column(title, min_width=longest, overflow="fold")
        else:
            table.add_column(title, justify="right", no_wrap=True)
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(cell.strip("*"), "bold" * cell.startswith("**")) for cell in row))
    return table
