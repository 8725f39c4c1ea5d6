"""Learned strengths: read from the weights that a run saved, and tabulated arm by arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.tables import NOTHING

if TYPE_CHECKING:
    from pandas import DataFrame

STRENGTHS_LINE = (
    "Learned strengths θ: means of their sizes over heads and seeds, the largest in brackets; of "
    "each layer, from 0, over queries, keys and values. Alike: how θ of two seeds correlate."
)

_PARAMETER = ".strength.theta"
_SIDES = ("queries", "keys", "values")


def saved_strengths(folder: Path) -> dict[str, list[list[list[float]]]]:
    """The strengths that a saved model has learned, by the names of their modules."""
    from safetensors import safe_open

    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            for name in weights.keys():  # it is no dictionary
                if name.endswith(_PARAMETER):
                    theta = weights.get_tensor(name).double().numpy()  # [3, hops, H]
                    found[name.removesuffix(_PARAMETER)] = theta.round(5).tolist()
    return found


def strengths_frame(results: Results) -> DataFrame:
    """What the arms have learned, a line for each task and arm; none where nobody has."""
    from pandas import DataFrame

    grid = results.grid
    lines = []
    for task in grid.tasks:
        for arm in grid.arms:
            records = [record for record in results.of(task, arm.name) if record.strengths]
            if records:
                lines.append({"task": task, "arm": arm.name} | dict(_cells(records)))
    return DataFrame(lines).fillna(NOTHING)


def _cells(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    names = list(records[0].strengths)
    theta = np.array([[record.strengths[name] for name in names] for record in records])
    layers = np.array([_layer(name) for name in names])
    for side, name in enumerate(_SIDES):
        yield name, _size(theta[:, :, side])
    for layer in np.unique(layers):
        yield f"layer {layer}", _size(theta[:, layers == layer])
    moved = theta.any(0)  # what is fixed stays at 0
    pairs = [np.corrcoef(a[moved], b[moved])[0, 1] for a, b in combinations(theta, 2)]
    yield "alike", f"{np.mean(pairs):+.2f}" if pairs else NOTHING


def _layer(module: str) -> int:
    """The first number in the name of a module, which is that of its layer."""
    return next((int(part) for part in module.split(".") if part.isdecimal()), 0)


def _size(theta: np.ndarray) -> str:
    return f"{np.abs(theta).mean():.3f} ({np.abs(theta).max():.2f})"
