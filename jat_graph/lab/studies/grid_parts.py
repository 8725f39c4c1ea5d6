"""The parts of a grid: its arms, how ρ is chosen, and the numbers of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from jat_graph.lab.studies.grid_fields import check_keys, number, numbers, table, text

SECONDS = "seconds"  # what a grid calls the time of training among its metrics
HEAD_KINDS = ("none", "paper", "released", "released-efficient", "efficient", "triplet")


@dataclass(frozen=True)
class GridArm:
    """One line of a table: what kind of heads a model has, and how it is trained.

    Args:
        name: What the line is called.
        heads: ``"none"``; ``"paper"``, ``"released"`` and ``"released-efficient"``, the presets of
            :class:`jat_graph.JatConfig`; ``"efficient"``, the paper's with its JAT† (Eq. 8); or
            ``"triplet"``. (default: "none")
        settings: Fields of :class:`jat_graph.JatConfig` or :class:`jat_graph.hf.TripletConfig`;
            layers and heads may be scaled to the model. (default: nothing)
        options: Fields of :class:`jat_graph.training.TrainingOptions` in place of the grid's;
            ``depth`` may be relative, as ``"-3"``. (default: nothing)
        tune: Choose ρ for each task on held-out training data; or the name of the arm whose choice
            is taken over. (default: False)
        density: Calibrate thresholds to this density. (default: None)
        line: Plots join the arms that share this name. (default: None)
        x: Where plots put the arm. (default: None)
    """

    name: str
    heads: str = "none"
    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    tune: bool | str = False
    density: float | None = None
    line: str | None = None
    x: float | None = None


@dataclass(frozen=True)
class Tuning:
    """How ρ is chosen.

    Args:
        thresholds: The values tried.
        held_out: Share of the training data that they are scored on. (default: 0.1)
    """

    thresholds: tuple[float, ...]
    held_out: float = 0.1


@dataclass(frozen=True)
class Paper:
    """Numbers that the paper prints, in its units.

    Args:
        model: The paper's model. (default: "")
        scores: ``scores[arm][task]``: a number, or numbers by metric. (default: nothing)
    """

    model: str = ""
    scores: Mapping[str, Mapping[str, float | Mapping[str, float]]] = field(default_factory=dict)


def read_arms(content: Mapping[str, Any], where: str) -> tuple[GridArm, ...]:
    """Return the arms of a grid."""
    found = content.get("arms")
    if not isinstance(found, list) or not found or not all(isinstance(a, Mapping) for a in found):
        raise ValueError(f"{where}: arms must be one or more tables [[arms]], got {found!r}")
    return tuple(_read_arm(entry, where) for entry in found)


def _read_arm(content: Mapping[str, Any], where: str) -> GridArm:
    name = text(content, "name", f"{where}, [[arms]]")
    here = f"{where}, arm {name!r}"
    check_keys(content, [entry.name for entry in fields(GridArm)], here)
    heads = text(content, "heads", here, default="none")
    if heads not in HEAD_KINDS:
        raise ValueError(f"{here}: heads must be one of {', '.join(HEAD_KINDS)}, got {heads!r}")
    tune = content.get("tune", False)
    if not isinstance(tune, bool | str):
        raise ValueError(f"{here}: tune must be true, false or an arm's name, got {tune!r}")
    return GridArm(
        name=name,
        heads=heads,
        settings=table(content, "settings", here),
        options=table(content, "options", here),
        tune=tune,
        density=number(content, "density", here),
        line=text(content, "line", here) if "line" in content else None,
        x=number(content, "x", here),
    )


def read_tuning(content: Mapping[str, Any], where: str) -> Tuning | None:
    """Return how a grid chooses ρ; None if it does not."""
    if "tuning" not in content:
        return None
    here, found = f"{where}, [tuning]", table(content, "tuning", where)
    check_keys(found, [entry.name for entry in fields(Tuning)], here)
    held_out = number(found, "held_out", here)
    tuning = Tuning(numbers(found, "thresholds", here), 0.1 if held_out is None else held_out)
    if len(set(tuning.thresholds)) != len(tuning.thresholds) or min(tuning.thresholds) < 0:
        wanted = "different numbers of at least 0"
        raise ValueError(f"{here}: thresholds must be {wanted}, got {list(tuning.thresholds)}")
    if not 0 < tuning.held_out < 1:
        raise ValueError(f"{here}: held_out must be between 0 and 1, got {tuning.held_out}")
    return tuning


def read_paper(content: Mapping[str, Any], where: str) -> Paper:
    """Return the numbers of the paper; those of arms that a grid lacks are of no use to it."""
    here, found = f"{where}, [paper]", dict(table(content, "paper", where))
    model = text(found, "model", here, default="")
    found.pop("model", None)
    for arm in found:
        for task, value in table(found, arm, here).items():
            values = value if isinstance(value, Mapping) else {task: value}
            for name in values:
                number(values, name, f"{here}, {arm!r}")
    return Paper(model, found)
