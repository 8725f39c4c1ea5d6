"""What probes found: tables with intervals, pictures, and what several models differ in."""

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
from jat_graph.core.files import read_object, write_text
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.drawing import draw_rows
from jat_graph.looking.viz.figures import Figure, save_figure

Floats: TypeAlias = NDArray[np.floating[Any]]

CONFIDENCE = 0.95
DRAWS = 2000
ENOUGH = 0.9  # of the drawings: a statistic that is undefined on more says nothing
VARIANT = "variant"
SAME = 1e-9  # spread of runs below which Student's t means nothing

CAPTION = (
    "A column of a probe for each variant of a model: the mean over training runs with its "
    "standard deviation, and the difference to the first variant. Low and high are the ends of the "
    "95 % interval of a paired t test over runs, not corrected for the number of rows; if it "
    "contains 0, no difference is shown."
)


@dataclass(frozen=True)
class Findings:
    """What a probe found.

    Args:
        name: Name of the probe, and of its files.
        caption: What the table and the pictures show.
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
            "index": list(self.index),
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
    tail = (1 - CONFIDENCE) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        found = statistic(values.sum(0)[None])[0]
        drawn = statistic(np.tensordot(_draws(len(values)), values, 1))
    enough = np.mean(~np.isnan(drawn), axis=0) >= ENOUGH
    drawn = np.where(enough, drawn, 0.0)
    low, high = np.where(enough, np.nanquantile(drawn, [tail, 1 - tail], axis=0), np.nan)
    return found, low, high


@lru_cache(maxsize=1)  # tables ask for the same ones again and again
def _draws(number: int) -> Floats:  # [DRAWS, S]: how often each sentence counts
    chance = np.random.default_rng(0)
    return chance.multinomial(number, np.full(number, 1 / number), DRAWS).astype(np.float64)


def compare_findings(
    variants: Mapping[str, Sequence[str | Path]], value: str | None = None
) -> Findings:
    """Hold what a probe found in several models against each other, row by row.

    Args:
        variants: The JSON files of one probe by variant, one for each training run. The first
            variant is what the others are compared with; runs are paired in their order.
        value: The column that is compared. (default: None, the first of fractions)

    Returns:
        For each row that all files have and each variant the mean over runs, their standard
        deviation, and the change against the first variant with its 95 % interval over runs, if
        there are several. A picture of the changes, ``compared``.

    Raises:
        ValueError: If there are not two variants with equally many files; if a file is no probe's,
            or not of the same probe, asked the same, as the first; or if they have no such column,
            or no row in common.

    Reference:
        Student's paired t test: the interval holds what other runs of training may do. Sentences
        are the same in all of them.
    """
    runs = {len(files) for files in variants.values()}
    if len(variants) < 2 or len(runs) > 1 or runs == {0}:
        told = ", ".join(f"{name} {len(files)}" for name, files in variants.items()) or "none"
        raise ValueError(f"variants must be two or more with equally many files, got {told}")
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for name, files in variants.items():
        for run, path in enumerate(files):
            found[name, run] = _read(path, next(iter(found.values()), None))
    first = next(iter(found.values()))
    fractions = [name for name, cell in first["rows"][0].items() if isinstance(cell, float)]
    column = value or next(name for name in fractions if name not in first["index"])
    series = {position: _column(one, column) for position, one in found.items()}
    wide = pd.concat(series, axis=1, join="inner").dropna()  # [rows, (variant, run)]
    if wide.empty:
        raise ValueError(f"the files must have a row in common with a {column}, got none")
    student = import_extra("scipy.stats").t
    (number,) = runs
    names = list(variants)
    parts = list[pd.DataFrame]()
    for name in names:
        own = wide[name]
        changes = wide[name] - wide[names[0]]  # [rows, runs]
        change = changes.mean(axis=1) if parts else np.nan
        deviation = changes.std(axis=1)
        error = deviation.where(deviation > SAME) / number**0.5
        low, high = student.interval(CONFIDENCE, number - 1, change, error)
        numbers = {"mean": own.mean(axis=1), "deviation": own.std(axis=1), "change": change}
        numbers |= {"low": low, "high": high}
        part = pd.DataFrame({VARIANT: name, **numbers}, index=wide.index)
        parts.append(part.reset_index())
    table = pd.concat(parts).sort_index(kind="stable").reset_index(drop=True)
    settings = {"probe": first["name"], "value": column, "variants": names, "runs": number}
    changed = {name: (table[table[VARIANT] == name], "change") for name in names[1:]}
    label = f"{column}: change against {names[0]} (95 % over runs)"
    figures = {"compared": draw_rows(changed, first["index"], label, 0)}
    return Findings("compared", CAPTION, table, settings, figures, (*first["index"], VARIANT))


def _read(path: str | Path, first: Mapping[str, Any] | None) -> dict[str, Any]:
    """Read a file, which must be of the probe of the first one, asked the same."""
    found = read_object(path, "file")
    if not found.get("rows") or not found.get("index") or "settings" not in found:
        raise ValueError(f"file {path} must be a probe's, with rows that other models have, too")
    told, wanted = ({"name": one["name"], **one["settings"]} for one in (found, first or found))
    for key in sorted(told.keys() | wanted.keys()):
        if told.get(key) != wanted.get(key):
            like, got = json.dumps(wanted.get(key)), json.dumps(told.get(key))
            raise ValueError(f"file {path} must have {key} {like}, as the first file, got {got}")
    return found


def _column(found: Mapping[str, Any], column: str) -> pd.Series[float]:
    """A column by what tells rows apart; words in a line, of no layer, are the same in all."""
    rows = pd.DataFrame(found["rows"]).dropna(subset=found["index"]).convert_dtypes()
    numbers = [name for name in rows.select_dtypes("number") if name not in found["index"]]
    if column not in numbers:
        raise ValueError(f"value must be one of {', '.join(numbers)}, got {column!r}")
    return rows.set_index(found["index"])[column].astype(float)
