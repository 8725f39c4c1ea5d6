"""What a probe found in several models, held against each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from jat_graph.files import read_object
from jat_graph.probes.findings import Findings
from jat_graph.probes.pictures import Figure, add_legend, draw_rows
from jat_graph.viz.figures import new_figure

VARIANT = "variant"
NUMBERS = ("mean", "deviation", "change", "low", "high")
SAME = 1e-9  # spread of runs below which Student's t means nothing

CAPTION = (
    "A column of a probe for each variant of a model, the mean over training runs with their "
    "standard deviation, and how much more that is than in the first variant. Low and high are the "
    "ends of the 95 % interval of a paired t test over runs, not corrected for the number of rows; "
    "where it holds 0, no difference is shown."
)


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

    Example:
        >>> from jat_graph.probes import compare_findings
        >>> compare_findings({"base": [], "stones": []})
        Traceback (most recent call last):
            ...
        ValueError: variants must be two or more with equally many files, got base 0, stones 0
    """
    from scipy.stats import ttest_1samp

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
    series = {place: _column(one, column) for place, one in found.items()}
    wide = pd.concat(series, axis=1, join="inner").dropna()  # [rows, (variant, run)]
    if wide.empty:
        raise ValueError(f"the files must have a row in common with a {column}, got none")
    parts = []
    for name in variants:
        own, changes = wide[name], wide[name] - wide[next(iter(variants))]  # [rows, runs]
        columns = {VARIANT: name, "mean": own.mean(axis=1), "deviation": own.std(axis=1)}
        if len(parts):
            columns["change"] = changes.mean(axis=1)
        if len(parts) and changes.shape[1] > 1:
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
    series: pd.Series[float] = rows.set_index(found["index"])[column].astype(float)
    return series


def _draw(table: pd.DataFrame, index: Sequence[str], names: Sequence[str], column: str) -> Figure:
    """Draw how far each variant is from the first, row by row."""
    own = {name: table[table[VARIANT] == name] for name in names}
    rows = own[names[0]][list(index)].astype(str).agg(", ".join, axis=1).tolist()
    figure = new_figure(7.0, 1.5 + 0.16 * len(rows) * (len(names) - 0.5))
    axis = figure.subplots()
    label = f"{column}: change against {names[0]} (95 % over runs)"
    draw_rows(axis, {name: (own[name], "change") for name in names[1:]}, rows, label, 0)
    return add_legend(figure, axis)
