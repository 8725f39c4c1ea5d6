"""Learned strengths: read from the weights that a run saved, tabulated and drawn."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from pandas import DataFrame
from safetensors import safe_open

from examples.sweeps.store import Record, Results

SIDES = ("queries", "keys", "values")
_PARAMETER = ".strength.theta"


def saved_strengths(folder: Path) -> dict[str, list[list[list[float]]]]:
    """Return the strengths ``[queries, keys, values][hop][head]`` of a saved model by module."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as weights:
            for name in weights.keys():  # it is no dictionary
                if name.endswith(_PARAMETER):
                    theta = weights.get_tensor(name).double().numpy()
                    found[name.removesuffix(_PARAMETER)] = theta.round(5).tolist()
    return found


def strengths_frame(results: Results) -> DataFrame:
    """Return what the variants have learned as texts, a line for each task and variant.

    Columns are means of the sizes of θ over heads and seeds, the largest in brackets, of each side
    and each layer from 0; ``alike`` is how θ of two seeds correlate, ``sizes alike`` their sizes.
    """
    lines = []
    for (task, variant), records in _learned(results).items():
        theta, layers = (
            _theta(records),
            np.array([_layer(module) for module in records[0].content["strengths"]]),
        )
        line = {"task": task, "variant": variant}
        line |= {side: _size(theta[:, :, index]) for index, side in enumerate(SIDES)}
        line |= {f"layer {n}": _size(theta[:, layers == n]) for n in np.unique(layers)}
        moved = theta.any(0)  # what is fixed stays at 0
        line["alike"] = _likeness(theta[:, moved])
        line["sizes alike"] = _likeness(np.abs(theta[:, moved]))
        lines.append(line)
    return DataFrame(lines).fillna("-")


def draw_strengths(results: Results) -> Figure:
    """Draw the sizes of θ of the largest hop, over layers and heads, means over the seeds."""
    learned = _learned(results)
    if not learned:
        raise ValueError(f"sweep {results.sweep.name} has no learned strengths to draw")
    figure = Figure(figsize=(6.8, 1.15 * len(learned) + 0.7), layout="constrained")
    axes = figure.subplots(len(learned), len(SIDES), squeeze=False)
    figure.suptitle(f"Which layers and heads jump\n{results.sweep.title}", fontsize=8)
    for row, ((task, variant), records) in zip(axes, learned.items(), strict=True):
        size = np.abs(_theta(records)).mean(0).max(2)  # [layers, 3, H]
        layers = [str(_layer(module)) for module in records[0].content["strengths"]]
        for index, (axis, side) in enumerate(zip(row, SIDES, strict=True)):
            image = axis.imshow(size[:, index], vmin=0.0, vmax=size.max(), aspect="auto")
            title = f"{task}, {variant}" if index == 0 else ""
            axis.set_title(f"{title}\n{side}", fontsize=7.5, loc="left")
            axis.set_yticks(range(len(layers)), layers)
            axis.tick_params(labelsize=7)
        row[0].set_ylabel("layer", fontsize=8)
        bar = figure.colorbar(image, ax=list(row), pad=0.02)
        bar.set_label("|θ|, mean", fontsize=7.5)
        bar.ax.tick_params(labelsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("head", fontsize=8)
    return figure


def _learned(results: Results) -> dict[tuple[str, str], list[Record]]:
    """The records that have strengths, by task and variant."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in results.records:
        if record.content.get("strengths"):
            found.setdefault((record.task, record.variant), []).append(record)
    return found


def _theta(records: list[Record]) -> np.ndarray:
    """Their strengths, ``[seeds, layers, 3, hops, H]``."""
    names = [*records[0].content["strengths"]]
    return np.array([[record.content["strengths"][name] for name in names] for record in records])


def _likeness(theta: np.ndarray) -> str:
    """The mean correlation of two seeds."""
    pairs = [np.corrcoef(*both)[0, 1] for both in combinations(theta, 2)]
    return f"{np.mean(pairs):+.2f}" if pairs else "-"


def _layer(module: str) -> int:
    """The first number in the name of a module, which is that of its layer."""
    return next((int(part) for part in module.split(".") if part.isdecimal()), 0)


def _size(theta: np.ndarray) -> str:
    return f"{np.abs(theta).mean():.3f} ({np.abs(theta).max():.2f})"
