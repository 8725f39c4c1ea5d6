"""ρ, chosen on training data that the runs which try it do not train on."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jat_graph.lab.store import check_same, locked
from jat_graph.lab.studies.cells import Cell, Plan, cell_folder
from jat_graph.lab.studies.grid import TUNING_SEED
from jat_graph.lab.studies.records import describe_trial, plan_fingerprint
from jat_graph.tasks import get_task
from jat_graph.training.runner import train
from jat_graph.training.storage import MODEL_FOLDER, read_json, write_json

# What a finished trial found, wherever model and data are by then.
TRIAL_FILE = "trial.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trial:
    """A run that tries a ρ.

    Args:
        cell: Task and arm, and a seed that no cell of the grid has.
        held_out: Share of the training data that it is scored on.
    """

    cell: Cell
    held_out: float


def tuned_arm(plan: Plan, cell: Cell) -> str | None:
    """Return the arm whose runs decide a cell's ρ."""
    tune = plan.grid.arm(cell.arm).tune
    return tune if isinstance(tune, str) else cell.arm if tune else None


def tuning_folders(plan: Plan, cell: Cell, output: Path) -> dict[float, Path]:
    """Return where the runs are that decide a cell's ρ."""
    arm, tuning = tuned_arm(plan, cell), plan.grid.tuning
    if arm is None or tuning is None:
        return {}
    place = cell_folder(output, Cell(cell.task, arm, TUNING_SEED)).parent / "tuning"
    return {threshold: place / f"threshold-{threshold:g}" for threshold in tuning.thresholds}


def choose_threshold(
    plan: Plan, cell: Cell, output: Path, *, progress: bool
) -> tuple[float, dict[str, float | None]]:
    """Try every ρ of the grid, or read what was tried before, and choose the best.

    A part of the training data is held out, the model is trained on the rest, with a seed that no
    cell has, and scored on that part. All seeds of an arm share the choice. Several processes
    share the work.
    """
    arm, tuning = tuned_arm(plan, cell), plan.grid.tuning
    if arm is None or tuning is None:
        raise ValueError(f"tune must be set to choose a threshold for {cell}, got nothing")
    trial = Trial(Cell(cell.task, arm, TUNING_SEED), tuning.held_out)
    folders = tuning_folders(plan, cell, output)
    scores: dict[float, float | None] = {}
    for wait in (False, True):  # first what nobody else is at, then what others have finished
        for threshold, folder in folders.items():
            if threshold in scores:
                continue
            with locked(folder, wait=wait) as free:
                if free:
                    scores[threshold] = _score(plan, trial, threshold, folder, progress)
    in_order = {threshold: scores[threshold] for threshold in folders}
    best = best_threshold(in_order, greater_is_better=get_task(cell.task).greater_is_better)
    return best, {f"{threshold:g}": score for threshold, score in in_order.items()}


def best_threshold(scores: Mapping[float, float | None], *, greater_is_better: bool) -> float:
    """Return the ρ with the best score."""
    sign = 1 if greater_is_better else -1
    defined = {rho: sign * score for rho, score in scores.items() if score is not None}
    if not defined:
        logger.warning("no score of any threshold is defined: the first one is taken")
        return next(iter(scores))
    return max(defined, key=lambda rho: defined[rho])


def _score(
    plan: Plan, trial: Trial, threshold: float, folder: Path, progress: bool
) -> float | None:
    """Return the score of one ρ on the held-out part of the training data."""
    cell, path = trial.cell, folder / TRIAL_FILE
    asked = {
        "fingerprint": plan_fingerprint(plan),
        "threshold": threshold,
        **describe_trial(plan.grid, cell),
    }
    if (found := read_json(path)) is not None:
        score: float | None = found.pop("score", None)
        check_same(found, asked, str(path))
        return score
    logger.info("%s, %s: trying threshold %g", cell.task, cell.arm, threshold)
    options = plan.options(cell, folder, held_out=trial.held_out)
    result = train(options, plan.heads(cell, threshold), progress=progress)
    shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
    write_json(path, {**asked, "score": result.primary})
    return result.primary
