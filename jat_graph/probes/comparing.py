"""What a probe found in several models, held against each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.files import read_object
from jat_graph.probes.findings import Findings
from jat_graph.viz import new_figure
from jat_graph.viz.figures import COLOURS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

ARM = "arm"
NUMBERS = ("mean", "deviation", "change", "low", "high")
STYLES = ((0, "o"), (5, "^"), (2, "s"), (3, "D"))  # colours and marks of arms
SAME = 1e-9  # spread of runs below which Student's t means nothing
POINT, APART = 0.16, 0.6  # inches for a point, and how far the points of a row are apart

Files = Mapping[str, Sequence[str | Path]]


def compare_findings(arms: Files, value: str | None = None) -> Findings:
    """Hold what a probe found in several models against each other, row by row.

    Args:
        arms: The JSON files of one probe by arm, one for each training run. The first arm is what
            the others are compared with; runs are paired in their order.
        value: The column that is compared. (default: None, the first of fractions)

    Returns:
        For each row that all files have and each arm the mean over runs, their standard deviation,
        and the change against the first arm with its 95 % interval over runs; one run gives none.
        A picture of the changes, ``compared``.

    Raises:
        ValueError: If there are not two arms with equally many files; if a file is no probe's,
            another probe's than the first, or of one that was asked otherwise; or if they have no
            such column, or no row in common.

    Reference:
        Student's paired t test: the interval holds what other runs of training may do. Sentences
        are the same in all of them.

    Example:
        >>> from jat_graph.probes import compare_findings
        >>> compare_findings({"base": [], "stones": []})
        Traceback (most recent call last):
            ...
        ValueError: arms must be two or more with equally many files, got base 0, stones 0
    """
    import pandas as pd

    runs = sorted({len(files) for files in arms.values()})
    if len(arms) < 2 or len(runs) > 1 or not runs[0]:
        told = ", ".join(f"{name} {len(files)}" for name, files in arms.items())
        raise ValueError(f"arms must be two or more with equally many files, got {told or 'none'}")
    paths = {(name, run): path for name, files in arms.items() for run, path in enumerate(files)}
    found = {place: _read(path) for place, path in paths.items()}
    first = next(iter(found.values()))
    for place, path in paths.items():
        _check_alike(found[place], first, path)
    column = value or _first_fraction(first)
    series = {place: _column(one, column) for place, one in found.items()}
    wide = pd.concat(series, axis=1, join="inner").dropna()  # [rows, (arm, run)]
    if wide.empty:
        raise ValueError(f"the files must have a row in common with a {column}, got none")
    table = _table(wide, list(arms))
    caption = _caption(first["name"], column, next(iter(arms)), runs[0])
    settings = {"probe": first["name"], "value": column, "arms": list(arms), "runs": runs[0]}
    figures = {"compared": _draw(table, first["index"], list(arms), column)}
    return Findings("compared", caption, table, settings, figures, (*first["index"], ARM))


def _read(path: str | Path) -> dict[str, Any]:
    found = read_object(path, "file")
    if not found.get("rows") or not found.get("index") or "settings" not in found:
        raise ValueError(f"file {path} must be a probe's, with rows that other models have, too")
    return found


def _check_alike(found: Mapping[str, Any], first: Mapping[str, Any], path: str | Path) -> None:
    """Refuse another probe, and one that was asked otherwise."""
    told, wanted = ({"name": one["name"], **one["settings"]} for one in (found, first))
    for key in sorted(told.keys() | wanted.keys()):
        if told.get(key) != wanted.get(key):
            like, got = json.dumps(wanted.get(key)), json.dumps(told.get(key))
            raise ValueError(f"file {path} must have {key} {like}, as the first file, got {got}")


def _first_fraction(found: Mapping[str, Any]) -> str:
    first = found["rows"][0]
    columns = [str(name) for name in first if isinstance(first[name], float)]
    return next(name for name in columns if name not in found["index"])


def _column(found: Mapping[str, Any], column: str) -> pd.Series[float]:
    """A column by what tells rows apart; words in a line, of no layer, are the same in all."""
    import pandas as pd

    rows = pd.DataFrame(found["rows"]).dropna(subset=found["index"]).convert_dtypes()
    numbers = [name for name in rows.select_dtypes("number") if name not in found["index"]]
    if column not in numbers:
        raise ValueError(f"value must be one of {', '.join(numbers)}, got {column!r}")
    series: pd.Series[float] = rows.set_index(found["index"])[column].astype(float)
    return series


def _table(wide: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """A row for each row of the probe's table and each arm."""
    import pandas as pd

    found = []
    for name in names:
        own = wide[name]  # [rows, runs]
        columns = {ARM: name, "mean": own.mean(axis=1), "deviation": own.std(axis=1)}
        if name != names[0]:
            columns |= _changes(own - wide[names[0]])
        found.append(pd.DataFrame(columns, index=wide.index).reset_index())
    kinds = dict.fromkeys(NUMBERS, float)
    table = pd.concat(found).sort_index(kind="stable").reset_index(drop=True)
    return table.reindex(columns=[*wide.index.names, ARM, *NUMBERS]).astype(kinds)


def _changes(differences: pd.DataFrame) -> dict[str, Any]:  # [rows, runs]
    """The mean over runs and its interval; none of one run, or where all runs say the same."""
    from scipy.stats import ttest_1samp

    found: dict[str, Any] = {"change": differences.mean(axis=1)}
    if differences.shape[1] > 1:
        spread = (differences.std(axis=1) > SAME).to_numpy()
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = ttest_1samp(differences.to_numpy(), 0.0, axis=1).confidence_interval(0.95)
        found |= {name: np.where(spread, own, np.nan) for name, own in ends._asdict().items()}
    return found


def _caption(probe: str, column: str, base: str, runs: int) -> str:
    return (
        f"{column} of the probe '{probe}' in each arm, the mean over {runs} training "
        f"run{'s' * (runs > 1)} with their standard deviation, and how much more that is than in "
        f"{base}. Low and high are the ends of the 95 % interval of a paired t test over runs, not "
        "corrected for the number of rows; where it holds 0, no difference is shown."
    )


def _draw(table: pd.DataFrame, index: Sequence[str], names: Sequence[str], column: str) -> Figure:
    """Draw how far each arm is from the first, row by row."""
    rows = table.loc[table[ARM] == names[0], list(index)].astype(str).agg(", ".join, axis=1)
    others = names[1:]
    figure = new_figure(7.0, 1.5 + POINT * len(rows) * (len(others) + 0.5))
    axis = figure.subplots()
    for number, name in enumerate(others):
        own = table[table[ARM] == name]
        colour, marker = STYLES[number % len(STYLES)]
        ends = np.nan_to_num([own["change"] - own["low"], own["high"] - own["change"]])
        places = np.arange(len(rows)) + APART * ((number + 0.5) / len(others) - 0.5)
        points: dict[str, Any] = {"fmt": marker, "color": COLOURS[colour], "capsize": 2.5}
        axis.errorbar(own["change"], places, xerr=ends, label=name, **points)
    axis.axvline(0, color="#666666", linestyle=":", linewidth=1.2)
    axis.set_yticks(range(len(rows)), rows.tolist(), fontsize=8)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlabel(f"{column}: change against {names[0]} (95 % over runs)", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure
