"""What a probe found: a table, a picture, and a caption that says what they mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.files import write_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Findings:
    """What a probe found.

    Args:
        name: Name of the probe, and of its files.
        caption: What the table and the picture show, in a few sentences.
        table: The numbers, a row for each thing that was measured.
        settings: What they depend on, in JSON types.
        figures: Pictures by name. (default: none)
        index: The columns that tell its rows apart, and so those of two models alike; none where a
            row means nothing in another model's table. (default: none)
    """

    name: str
    caption: str
    table: pd.DataFrame
    settings: Mapping[str, Any]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    index: tuple[str, ...] = ()

    def to_markdown(self, digits: int = 3) -> str:
        """Return the caption and the table in Markdown.

        Args:
            digits: Digits after the point. (default: 3)

        Returns:
            The text.
        """
        table = self.cells(digits).to_markdown(index=False, disable_numparse=True)
        return f"{self.caption}\n\n{table}\n"

    def cells(self, digits: int = 3, intervals: bool = True) -> pd.DataFrame:
        """Return the table as it is shown: all cells are texts, each interval beside its value.

        Args:
            digits: Digits after the point. (default: 3)
            intervals: Whether intervals are shown. (default: True)

        Returns:
            A table with a row for each of the table's.
        """
        cells = self.table.map(partial(_cell, digits=digits))
        columns = list(cells)
        for value, low, high in zip(columns, columns[1:], columns[2:], strict=False):
            if not (low.endswith("low") and high.endswith("high")):
                continue
            if intervals:
                known = cells[low] != ""
                ends = " (" + cells[low] + " to " + cells[high] + ")"
                cells[value] += ends.where(known, "")
            cells = cells.drop(columns=[low, high])
        return cells

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the pictures as JSON types."""
        rows = json.loads(self.table.to_json(orient="records", double_precision=6))
        return {
            "name": self.name,
            "caption": self.caption,
            "settings": dict(self.settings),
            "index": list(self.index),
            "rows": rows,
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write the table as Markdown and JSON, and the pictures as PNG and SVG.

        Args:
            folder: Where to; made if it is not there.

        Returns:
            The files.
        """
        from jat_graph.viz import save_figure

        home = Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        markdown, data = home / f"{self.name}.md", home / f"{self.name}.json"
        write_text(markdown, self.to_markdown())
        write_text(data, json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")
        pictures = [home / f"{name}{end}" for name in self.figures for end in (".png", ".svg")]
        for path in pictures:
            save_figure(self.figures[path.stem], path)
        return [markdown, data, *pictures]


def _cell(value: Any, digits: int) -> str:
    """A number in so many digits; nothing where there is none."""
    import pandas as pd

    if not isinstance(value, str | list) and pd.isna(value):
        return ""
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)
