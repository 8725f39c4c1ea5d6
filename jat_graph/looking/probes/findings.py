"""What probes found: tables with intervals, pictures, and what several models differ in."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from jat_graph.core.extras import import_extra
from jat_graph.core.files import read_object, write_text
from jat_graph.looking.directions import isolated
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.viz.figures import PAGE, new_figure

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


Floats: TypeAlias = NDArray[np.floating[Any]]
Integers: TypeAlias = NDArray[np.int64]

CONFIDENCE = 0.95
DRAWS = 2000
ENOUGH = 0.9  # of the drawings: a statistic that is undefined on more says nothing
VARIANT = "variant"
NUMBERS = ("mean", "deviation", "change", "low", "high")
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
        from jat_graph.looking.viz import save_figure

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


def resampled_mean(
    values: ArrayLike, rows: Any, number: int, counts: ArrayLike = 1.0
) -> tuple[Floats, Floats, Floats]:
    """Return the mean of what is in some of so many sentences, and its interval, as below."""
    both = np.zeros((2, number, *np.shape(values)[1:]))
    for sums, own in zip(both, (values, counts), strict=True):
        np.add.at(sums, rows, own)
    return resampled_ratio(*both)


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
    ttest_1samp = import_extra("scipy.stats").ttest_1samp
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
    parts: list[pd.DataFrame] = []
    for name in variants:
        own, changes = wide[name], wide[name] - wide[next(iter(variants))]  # [rows, runs]
        columns = {VARIANT: name, "mean": own.mean(axis=1), "deviation": own.std(axis=1)}
        if parts:
            columns["change"] = changes.mean(axis=1)
        if parts and changes.shape[1] > 1:
            with np.errstate(divide="ignore", invalid="ignore"):
                ends = ttest_1samp(changes.to_numpy(), 0.0, axis=1).confidence_interval(0.95)
            spread = (changes.std(axis=1) > SAME).to_numpy()
            columns |= {end: np.where(spread, one, np.nan) for end, one in ends._asdict().items()}
        parts.append(pd.DataFrame(columns, index=wide.index).reset_index())
    table = pd.concat(parts).sort_index(kind="stable").reset_index(drop=True)
    index = (*first["index"], VARIANT)
    table = table.reindex(columns=[*index, *NUMBERS]).astype(dict.fromkeys(NUMBERS, float))
    settings = {"probe": first["name"], "value": column, "variants": list(variants)}
    figures = {"compared": _draw(table, first["index"], list(variants), column)}
    return Findings("compared", CAPTION, table, settings | {"runs": max(runs)}, figures, index)


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


def _draw(table: pd.DataFrame, index: Sequence[str], names: Sequence[str], column: str) -> Figure:
    """Draw how far each variant is from the first, row by row."""
    own = {name: table[table[VARIANT] == name] for name in names}
    rows = [
        ", ".join(f"{name} {x}" if isinstance(x, int) else str(x) for name, x in row.items())
        for row in own[names[0]][list(index)].to_dict("records")
    ]
    figure = new_figure(PAGE, 1.2 + 0.12 * len(rows) * (len(names) - 0.5))
    axis = figure.subplots()
    label = f"{column}: change against {names[0]} (95 % over runs)"
    draw_rows(axis, {name: (own[name], "change") for name in names[1:]}, rows, label, 0)
    return add_legend(figure, axis)


Axes: TypeAlias = "matplotlib.axes.Axes"
Figure: TypeAlias = "matplotlib.figure.Figure"

# Okabe and Ito's colours, which all readers tell apart; what differs has another mark, too.
COLOURS = "#0072B2 #D55E00 #009E73 #CC79A7 #E69F00 #56B4E9 #000000 #B8A800".split()
MARKERS = "o^sDvPX*"
QUIET = "#767676"
ROW = 0.22  # inches


def _ends(table: pd.DataFrame, name: str) -> Any:  # [2, N]
    """How far the ends of intervals are below and above values, 0 where there are none."""
    start = next(part for part in (f"{name} ", f"{name}_", "") if f"{part}low" in table)
    low, high = (table[f"{start}{end}"].to_numpy(float) for end in ("low", "high"))
    values = table[name].to_numpy(float)
    return np.clip(np.nan_to_num([values - low, high - values]), 0, None)


def draw_layers(
    axis: Axes, table: pd.DataFrame, across: str, name: str, style: int, label: str, line: str = "-"
) -> None:
    """Draw a column with its intervals over layers, or what else is across."""
    look: Any = {"color": COLOURS[style], "marker": MARKERS[style], "ls": line, "ms": 5}
    values = table[name].to_numpy(float)
    axis.errorbar(table[across], values, _ends(table, name), label=label, capsize=2.5, **look)
    axis.set_xlabel("layer (0: embeddings)" if across == "layer" else across, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(axis="y", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    if across == "layer":
        axis.set_xticks(sorted(table[across].dropna().unique()))


def draw_rows(
    axis: Axes,
    tables: Mapping[str, tuple[pd.DataFrame, str]],
    rows: Sequence[str],
    label: str,
    line: float | None = None,
) -> None:
    """Draw columns with intervals along named rows, and a line where there is nothing to see."""
    for style, (own, (table, name)) in enumerate(tables.items()):
        shift = 0.6 * ((style + 0.5) / len(tables) - 0.5)
        look: Any = {"color": COLOURS[style], "fmt": MARKERS[style], "ms": 4.5, "lw": 1.2}
        indices, values = np.arange(len(table)) + shift, table[name].to_numpy(float)
        axis.errorbar(values, indices, xerr=_ends(table, name), label=own, capsize=2, **look)
    if line is not None:
        axis.axvline(line, color=QUIET, linestyle=":", linewidth=1.2)
    axis.set_yticks(range(len(rows)), [isolated(row) for row in rows], fontsize=8)
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.set_xlabel(label, fontsize=9)
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)


def add_legend(figure: Figure, axis: Axes, columns: int = 4) -> Figure:
    """Write below a figure what the lines and points of a panel are, and return it."""
    where: Any = "outside lower center"
    lines, labels = axis.get_legend_handles_labels()
    figure.legend(lines, labels, loc=where, ncols=columns, fontsize=8, frameon=False)
    return figure
