"""What probes found: tables with intervals, and pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jat_graph.core.extras import import_extra
from jat_graph.core.files import write_text
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.viz.figures import Figure, save_figure

Floats: TypeAlias = NDArray[np.floating[Any]]

DRAWS = 2000
ENOUGH = 0.9  # of the drawings: a statistic that is undefined on more says nothing


@dataclass(frozen=True)
class Findings:
    """What a probe found.

    Args:
        name: Name of the probe, and of its files.
        caption: What the table and the pictures show.
        table: The numbers, a row for each thing that was measured.
        settings: What they depend on, in JSON types.
        figures: Pictures by name. (default: none)
    """

    name: str
    caption: str
    table: pd.DataFrame
    settings: Mapping[str, Any]
    figures: Mapping[str, Figure] = field(default_factory=dict)

    def to_markdown(self) -> str:
        """Return the caption and the table in Markdown, each interval beside its value."""

        def cell(value: Any) -> str:
            if not isinstance(value, str | list) and pd.isna(value):
                return ""
            return f"{value:.3f}" if isinstance(value, float) else str(value)

        cells = self.table.map(cell)
        columns = list(cells)
        for value, low, high in zip(columns, columns[1:], columns[2:], strict=False):
            if low.endswith("low") and high.endswith("high"):
                ends = " (" + cells[low] + " to " + cells[high] + ")"
                cells[value] += ends.where(cells[low] != "", "")
                cells = cells.drop(columns=[low, high])
        import_extra("tabulate")  # with which pandas writes it
        return f"{self.caption}\n\n{cells.to_markdown(index=False, disable_numparse=True)}\n"

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the pictures as JSON types."""
        return {
            "name": self.name,
            "caption": self.caption,
            "settings": dict(self.settings),
            "rows": json.loads(self.table.to_json(orient="records", double_precision=6)),
        }

    def save(self, folder: str | Path) -> list[Path]:
        """Write the table as Markdown and JSON, and the pictures as PNG and SVG.

        Args:
            folder: Where to; made if it is not there.

        Returns:
            The files.
        """
        home = Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        markdown, data = home / f"{self.name}.md", home / f"{self.name}.json"
        write_text(markdown, self.to_markdown())
        write_text(data, json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")
        pictures = [home / f"{name}{end}" for name in self.figures for end in (".png", ".svg")]
        for path in pictures:
            save_figure(self.figures[path.stem], path)
        return [markdown, data, *pictures]


def with_ends(name: str, found: Sequence[Any], prefix: str | None = None) -> dict[str, float]:
    """Name a value and the ends of its interval, as in a row of a table."""
    start = f"{name} " if prefix is None else prefix
    return dict(zip((name, f"{start}low", f"{start}high"), map(float, found), strict=True))


def resampled_mean(values: ArrayLike, rows: Any, number: int) -> tuple[Floats, Floats, Floats]:
    """Return the mean of what is in some of so many sentences, and its interval, as below."""
    hits, totals = np.zeros((2, number, *np.shape(values)[1:]))
    np.add.at(hits, rows, values)
    np.add.at(totals, rows, 1.0)
    return resampled_ratio(hits, totals)


def resampled_ratio(hits: ArrayLike, totals: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return Σ hits / Σ totals over sentences, [S, …] each or NaN, and its 95 % interval."""
    return resampled(np.stack([hits, totals], -1), lambda sums: sums[..., 0] / sums[..., 1])


def resampled(
    rows: ArrayLike,  # [S, …], of each sentence
    statistic: Callable[[Floats], Floats],  # of sums over sentences: [n, …] -> [n, …]
) -> tuple[Floats, Floats, Floats]:  # […] each
    """Return a statistic of Σ rows over sentences, and the ends of its 95 % interval or NaN."""
    # Words of one sentence are not independent, which so is drawn whole (Efron and Tibshirani 1993,
    # chapter 13). As a statistic is of sums, all drawings are one product of matrices; scipy's
    # bootstrap would gather the rows of each drawing, a hundred times as much.
    values = np.asarray(rows, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = statistic(values.sum(0)[None])[0]
        drawn = statistic(np.tensordot(_draws(len(values)), values, 1))
    enough = np.mean(~np.isnan(drawn), axis=0) >= ENOUGH
    drawn = np.where(enough, drawn, 0.0)
    low, high = np.where(enough, np.nanquantile(drawn, [0.025, 0.975], axis=0), np.nan)
    return found, low, high


@lru_cache(maxsize=1)  # tables ask for the same ones again and again
def _draws(number: int) -> Floats:  # [DRAWS, S]: how often each sentence counts
    chance = np.random.default_rng(0)
    return chance.multinomial(number, np.full(number, 1 / number), DRAWS).astype(np.float64)
