"""Cells of the kind ``train``: a model is fine-tuned on a task, and scored on its dev sets.

Where an arm asks for it, ρ is chosen first, on training data that the runs which try it do not
train on, or thresholds are calibrated.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.config import JatConfig
from jat_graph.lab.store import check_same, locked
from jat_graph.lab.studies.cells import Cell, Plan, cell_folder, output_of
from jat_graph.lab.studies.grid import TUNING_SEED, Grid, check_columns, check_tasks, task_metrics
from jat_graph.lab.studies.kinds import Kind, enter_kind
from jat_graph.lab.studies.records import describe_trial, plan_fingerprint
from jat_graph.lab.studies.results import Record
from jat_graph.lab.studies.timing import warm_up
from jat_graph.lab.tables import SECONDS
from jat_graph.tasks import LabelledTask, get_task
from jat_graph.training.data import TRAIN, dev_splits
from jat_graph.training.measuring import calibrate_on_task
from jat_graph.training.objectives.base import draw
from jat_graph.training.options import Heads, TrainingOptions
from jat_graph.training.results import RunResult
from jat_graph.training.runner import train
from jat_graph.training.storage import (
    ANSWERS_FILE,
    CHECKPOINT_FOLDER,
    MODEL_FOLDER,
    RESULTS_FILE,
    RUN_FILE,
    prepare_folder,
    read_json,
    write_json,
)

if TYPE_CHECKING:
    from datasets import Dataset

CALIBRATED_FILE = "calibrated.json"
# What a finished trial found, wherever model and data are by then.
TRIAL_FILE = "trial.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chosen:
    """What a cell is trained with, after everything is measured that has to be."""

    options: TrainingOptions
    heads: Heads | None  # None for a model without
    threshold: float | None = None  # ρ that tuning chose
    tuning: dict[str, float | None] | None = None  # score of each ρ that was tried, by its text


class FineTuning(Kind):
    """The plan's model is trained on a task, and scored on its dev sets."""

    primary_only = True

    def check(self, grid: Grid, where: str) -> None:
        """Refuse unknown tasks, and columns that no task has."""
        check_tasks(grid, where)
        check_columns(grid, (SECONDS, *task_metrics(grid)), where)
        if SECONDS in grid.columns and len(grid.columns) > 1:
            asked = f"got {', '.join(grid.columns)}"
            raise ValueError(f"{where}: columns must be {SECONDS} alone where times are, {asked}")

    def run_cell(self, cell: Cell, plan: Plan, folder: Path, progress: bool) -> Record:
        """Train and score one cell; the trained weights are not kept."""
        chosen = choose_heads(cell, plan, folder, progress)
        if SECONDS in plan.grid.columns and not (folder / RESULTS_FILE).exists():
            _begin_anew(folder)  # a run may go on where other things are running, too
            warm_up(plan.options(cell, folder), plan.heads(cell))
        result = train(chosen.options, chosen.heads, progress=progress)
        shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
        return make_record(cell, chosen, result)


enter_kind("train", FineTuning())


def choose_heads(cell: Cell, plan: Plan, folder: Path, progress: bool) -> Chosen:
    """Choose or measure thresholds where the arm asks for it."""
    threshold, tuning = None, None
    if trial_of(plan, cell) is not None:
        threshold, tuning = choose_threshold(plan, cell, output_of(folder), progress=progress)
    options = plan.options(cell, folder)
    heads = _calibrated(plan, cell, options, plan.heads(cell, threshold))
    return Chosen(options, heads, threshold, tuning)


def make_record(cell: Cell, chosen: Chosen, result: RunResult) -> Record:
    """Put together what a trained cell says about itself."""
    answers: dict[str, Any] = read_json(Path(chosen.options.output_dir) / ANSWERS_FILE) or {}
    answered = {split: len(both["right"]) for split, both in answers.items()}
    used, whole = count_examples(chosen.options)
    return Record(
        task=cell.task,
        arm=cell.arm,
        seed=cell.seed,
        scores=result.metrics,
        answers=answers,
        seconds=result.seconds,
        steps=result.steps,
        device=result.device,
        heads=None if chosen.heads is None else chosen.heads.to_dict(),
        examples=used | answered,
        threshold=chosen.threshold,
        tuning=chosen.tuning,
        all_examples=whole,
    )


def _begin_anew(folder: Path) -> None:
    """Forget a run that was interrupted."""
    shutil.rmtree(folder / CHECKPOINT_FOLDER, ignore_errors=True)
    (folder / RUN_FILE).unlink(missing_ok=True)


def _calibrated(
    plan: Plan, cell: Cell, options: TrainingOptions, heads: Heads | None
) -> Heads | None:
    """Measure thresholds once: a run that goes on elsewhere must have the same, to the last bit."""
    density = plan.grid.arm(cell.arm).density
    if density is None or not isinstance(heads, JatConfig):
        return heads
    path = prepare_folder(options.output_dir) / CALIBRATED_FILE
    elsewhere = {"output_dir": "", "resume": False}  # which changes nothing
    asked = {
        "density": density,
        "heads": heads.to_dict(),
        "options": options.to_dict() | elsewhere,
    }
    asked = json.loads(json.dumps(asked))
    found = read_json(path)
    if found is not None and {name: found.get(name) for name in asked} == asked:
        return JatConfig.from_dict(found["config"])
    config = calibrate_on_task(options, heads, density)
    write_json(path, {**asked, "config": config.to_dict()})
    return config


def trial_of(plan: Plan, cell: Cell) -> Cell | None:
    """Whose runs decide a cell's ρ: its arm's or another one's, with a seed that no cell has."""
    tune = plan.grid.arm(cell.arm).tune
    if tune is False:
        return None
    return Cell(cell.task, tune if isinstance(tune, str) else cell.arm, TUNING_SEED)


def tuning_folders(plan: Plan, cell: Cell, output: Path) -> dict[float, Path]:
    """Where the runs are that decide a cell's ρ."""
    trial, tuning = trial_of(plan, cell), plan.grid.tuning
    if trial is None or tuning is None:
        return {}
    place = cell_folder(output, trial).parent / "tuning"
    return {threshold: place / f"threshold-{threshold:g}" for threshold in tuning.thresholds}


def choose_threshold(
    plan: Plan, cell: Cell, output: Path, *, progress: bool
) -> tuple[float, dict[str, float | None]]:
    """Try every ρ of the grid, or read what was tried before, and choose the best.

    A part of the training data is held out, the model is trained on the rest, with a seed that no
    cell has, and scored on that part. All seeds of an arm share the choice. Several processes
    share the work.
    """
    trial, folders = trial_of(plan, cell), tuning_folders(plan, cell, output)
    if trial is None:
        raise ValueError(f"tune must be set to choose a threshold for {cell}, got nothing")
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


def _score(plan: Plan, trial: Cell, threshold: float, folder: Path, progress: bool) -> float | None:
    """The score of one ρ on the held-out part of the training data."""
    described, path = describe_trial(plan.grid, trial), folder / TRIAL_FILE
    asked = {"fingerprint": plan_fingerprint(plan), "threshold": threshold, **described}
    if (found := read_json(path)) is not None:
        score: float | None = found.pop("score", None)
        check_same(found, asked, str(path))
        return score
    logger.info("%s, %s: trying threshold %g", trial.task, trial.arm, threshold)
    options = plan.options(trial, folder, held_out=described["held_out"])
    result = train(options, plan.heads(trial, threshold), progress=progress)
    shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
    write_json(path, {**asked, "score": result.primary})
    return result.primary


def count_examples(options: TrainingOptions) -> tuple[dict[str, int], dict[str, int]]:
    """Count the examples of each split that a run uses, and all that there are."""
    task = get_task(options.task)
    folder = None if options.data_dir is None else Path(options.data_dir)
    group = task.group if isinstance(task, LabelledTask) else None
    limits = dict.fromkeys(dev_splits(task, options), options.max_eval_samples)
    limits = {TRAIN: options.max_train_samples, **limits}
    splits = task.load(folder, list(limits))
    used = {name: _examples(draw(splits[name], limits[name], group), group) for name in limits}
    return used, {name: _examples(splits[name], group) for name in limits}


def _examples(rows: Dataset, group: str | None) -> int:
    return len(rows) if group is None else len(set(rows[group]))
