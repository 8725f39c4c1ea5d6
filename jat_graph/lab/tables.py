"""Tables of texts, for a page and for a terminal: the one place that writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame
    from rich.table import Table

NOTHING = "-"


def markdown(frame: DataFrame, left: Sequence[str]) -> str:
    """A table in Markdown; columns named in ``left`` hold words, the others numbers."""
    align = ["left" if column in left else "right" for column in frame.columns]
    text: str = frame.to_markdown(index=False, colalign=align, disable_numparse=True)
    return text


def terminal_table(frame: DataFrame, left: Sequence[str], **settings: Any) -> Table:
    """A table for a terminal of 80 columns; numbers are never broken."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, **settings)
    for column in frame.columns:
        is_word = column in left
        table.add_column(column, justify="left" if is_word else "right", no_wrap=not is_word)
    for row in frame.itertuples(index=False):
        table.add_row(*row)
    return table
