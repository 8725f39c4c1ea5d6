"""Learned strengths: read from the weights that a run saved, tabulated and drawn arm by arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jat_graph.lab.figure import open_figure
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.tables import NOTHING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

STRENGTHS_LINE = (
    "Learned strengths θ: means of their sizes over heads and seeds, the largest in brackets; of "
    "each layer, from 0, over queries, keys and values. Alike: how θ of two seeds correlate; sizes "
    "alike: how their sizes do."
)

_PARAMETER = ".strength.theta"
_SIDES = ("queries", "keys", "values")
_PANEL = (2.4, 1.7)  # inches
_AROUND = 0.6  # inches of the title


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

    lines = [
        {"task": task, "arm": arm} | dict(_cells(records))
        for (task, arm), records in _learned(results).items()
    ]
    return DataFrame(lines).fillna(NOTHING)


def can_draw_strengths(results: Results) -> bool:
    """Tell whether models of several layers have learned any."""
    return any(len(records[0].strengths) > 1 for records in _learned(results).values())


def draw_strengths(results: Results) -> Figure:
    """Draw which layers and heads choose to jump: sizes of θ, a row for each task and arm."""
    learned = _learned(results)
    columns, rows = len(_SIDES), len(learned)
    width, height = _PANEL[0] * columns + 0.9, _PANEL[1] * rows + _AROUND
    figure, axes = open_figure(columns * rows, columns, (width, height))
    figure.suptitle(f"Which layers and heads jump\n{results.grid.title}", fontsize=10)
    for row, (name, records) in enumerate(learned.items()):
        _draw_row(axes[columns * row : columns * (row + 1)], ", ".join(name), records)
    for axis in axes[-columns:]:
        axis.set_xlabel("head", fontsize=8)
    return figure


def _draw_row(axes: Sequence[Axes], name: str, records: Sequence[Record]) -> None:
    """Draw what an arm has learned on a task, queries, keys and values on one scale."""
    from matplotlib.ticker import MaxNLocator

    size = np.abs(_theta(records)).mean(0).max(2)  # [layers, 3, H], of the largest hop
    layers = [_layer(module) for module in records[0].strengths]
    for place, (axis, side) in enumerate(zip(axes, _SIDES, strict=True)):
        image = axis.imshow(size[:, place], vmin=0.0, vmax=size.max(), aspect="auto")
        first = "" if place else name  # above all three
        axis.set_title(f"{first}\n{side}", fontsize=8, loc="left")
        axis.set_yticks(range(len(layers)), [str(layer) for layer in layers])
        axis.tick_params(labelsize=7)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes[0].set_ylabel("layer", fontsize=8)
    bar = axes[0].figure.colorbar(image, ax=list(axes), pad=0.02)
    bar.set_label("|θ|, mean over seeds", fontsize=7)
    bar.ax.tick_params(labelsize=7)


def _learned(results: Results) -> dict[tuple[str, str], list[Record]]:
    """The records that have strengths, by task and arm."""
    found = {
        (task, arm.name): [record for record in results.of(task, arm.name) if record.strengths]
        for task in results.grid.tasks
        for arm in results.grid.arms
    }
    return {name: records for name, records in found.items() if records}


def _theta(records: Sequence[Record]) -> np.ndarray:
    """Their strengths. [seeds, layers, 3, hops, H]."""
    names = list(records[0].strengths)
    return np.array([[record.strengths[name] for name in names] for record in records])


def _cells(records: Sequence[Record]) -> Iterator[tuple[str, str]]:
    theta = _theta(records)
    layers = np.array([_layer(name) for name in records[0].strengths])
    for side, name in enumerate(_SIDES):
        yield name, _size(theta[:, :, side])
    for layer in np.unique(layers):
        yield f"layer {layer}", _size(theta[:, layers == layer])
    moved = theta.any(0)  # what is fixed stays at 0
    yield "alike", _likeness(theta[:, moved])
    yield "sizes alike", _likeness(np.abs(theta[:, moved]))


def _likeness(theta: np.ndarray) -> str:
    """The mean correlation of two seeds."""
    pairs = [np.corrcoef(*both)[0, 1] for both in combinations(theta, 2)]
    return f"{np.mean(pairs):+.2f}" if pairs else NOTHING


def _layer(module: str) -> int:
    """The first number in the name of a module, which is that of its layer."""
    return next((int(part) for part in module.split(".") if part.isdecimal()), 0)


def _size(theta: np.ndarray) -> str:
    return f"{np.abs(theta).mean():.3f} ({np.abs(theta).max():.2f})"
