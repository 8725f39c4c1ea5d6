"""Cells of the kind ``train``: a model is fine-tuned on a task, and scored on its dev sets.

Where an arm asks for it, ρ is chosen first, on training data that the runs which try it do not
train on, or thresholds are calibrated.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.lab.store import check_same, locked
from jat_graph.lab.studies.cells import Cell, Plan, cell_folder, output_of
from jat_graph.lab.studies.grid import TUNING_SEED, Grid, check_columns, check_tasks, task_metrics
from jat_graph.lab.studies.kinds import Kind, enter_kind
from jat_graph.lab.studies.records import describe_trial, plan_fingerprint
from jat_graph.lab.studies.results import Record
from jat_graph.lab.studies.strengths import saved_strengths
from jat_graph.lab.studies.timing import warm_up
from jat_graph.lab.tables import SECONDS
from jat_graph.tasks import get_task
from jat_graph.training.data import drawn_rows, group_of
from jat_graph.training.heads import Heads, kinds_of
from jat_graph.training.measuring import calibrate_once
from jat_graph.training.options import TrainingOptions
from jat_graph.training.results import RunResult
from jat_graph.training.runner import train
from jat_graph.training.storage import (
    CHECKPOINT_FOLDER,
    MODEL_FOLDER,
    RESULTS_FILE,
    RUN_FILE,
    read_answers,
    read_json,
    write_json,
)

if TYPE_CHECKING:
    from datasets import Dataset

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

    def check(self, grid: Grid, where: str) -> None:
        """Refuse unknown tasks, and columns that no task has."""
        check_tasks(grid, where)
        check_columns(grid, (SECONDS, *task_metrics(grid)), where)
        if SECONDS in grid.columns and len(grid.columns) > 1:
            asked = f"got {', '.join(grid.columns)}"
            raise ValueError(f"{where}: columns must be {SECONDS} alone where times are, {asked}")

    def run_cell(self, cell: Cell, plan: Plan, folder: Path, progress: bool) -> Record:
        """Train and score one cell."""
        chosen = choose_heads(cell, plan, folder, progress)
        if SECONDS in plan.grid.columns and not (folder / RESULTS_FILE).exists():
            _begin_anew(folder)  # a run may go on where other things are running, too
            warm_up(plan.options(cell, folder), plan.heads(cell))
        result = train(chosen.options, chosen.heads, progress=progress)
        return make_record(cell, chosen, result)

    def lessons(self, cell: Cell, plan: Plan, output: Path) -> list[TrainingOptions]:
        """The trials of ρ that are not finished, which all seeds share."""
        trials = trials_of(plan, cell, output).values()
        return [run for run in trials if not (Path(run.output_dir) / TRIAL_FILE).exists()]


enter_kind("train", FineTuning())


def choose_heads(cell: Cell, plan: Plan, folder: Path, progress: bool) -> Chosen:
    """Choose or measure thresholds where the arm asks for it."""
    threshold, tuning = None, None
    if plan.grid.arm(cell.arm).tune is not False:
        threshold, tuning = choose_threshold(plan, cell, output_of(folder), progress=progress)
    options = plan.options(cell, folder)
    heads = _calibrated(plan, cell, options, plan.heads(cell, threshold))
    return Chosen(options, heads, threshold, tuning)


def make_record(cell: Cell, chosen: Chosen, result: RunResult) -> Record:
    """Put together what a trained cell says about itself."""
    answers = read_answers(Path(chosen.options.output_dir))
    answered = {split: len(both["right"]) for split, both in answers.items()}
    group = group_of(get_task(chosen.options.task))
    rows = drawn_rows(chosen.options)
    used = {split: _examples(drawn, group) for split, (drawn, _) in rows.items()}
    return record_of(
        cell,
        result,
        answers=answers,
        examples=used | answered,
        threshold=chosen.threshold,
        tuning=chosen.tuning,
        all_examples={split: _examples(every, group) for split, (_, every) in rows.items()},
        strengths=saved_strengths(Path(chosen.options.output_dir) / MODEL_FOLDER),
    )


def _examples(rows: Dataset, group: str | None) -> int:
    return len(rows) if group is None else len(set(rows[group]))


def record_of(cell: Cell, run: RunResult, **more: Any) -> Record:
    """What a cell says about itself that is one run."""
    return Record(
        **asdict(cell),
        scores=run.metrics,
        seconds=run.seconds,
        steps=run.steps,
        device=run.device,
        mixed_precision=run.mixed_precision,
        heads=run.config,
        **more,
    )


def _begin_anew(folder: Path) -> None:
    """Forget a run that was interrupted."""
    shutil.rmtree(folder / CHECKPOINT_FOLDER, ignore_errors=True)
    (folder / RUN_FILE).unlink(missing_ok=True)


def _calibrated(
    plan: Plan, cell: Cell, options: TrainingOptions, heads: Heads | None
) -> Heads | None:
    """Measure thresholds once, where the arm asks for it."""
    density = plan.grid.arm(cell.arm).density
    if density is None or heads is None or kinds_of(heads)[0] is None:
        return heads
    return calibrate_once(options, heads, density)


def _chooser(plan: Plan, cell: Cell) -> Cell | None:
    """Whose runs decide a cell's ρ: its arm's or another one's, with a seed that no cell has."""
    tune = plan.grid.arm(cell.arm).tune
    if tune is False:
        return None
    return Cell(cell.task, tune if isinstance(tune, str) else cell.arm, TUNING_SEED)


def trials_of(plan: Plan, cell: Cell, output: Path) -> dict[float, TrainingOptions]:
    """The runs that decide a cell's ρ, by the ρ that each of them tries."""
    trial, tuning = _chooser(plan, cell), plan.grid.tuning
    if trial is None or tuning is None:
        return {}
    place, held_out = cell_folder(output, trial).parent / "tuning", tuning.held_out
    return {
        threshold: plan.options(trial, place / f"threshold-{threshold:g}", held_out=held_out)
        for threshold in tuning.thresholds
    }


def choose_threshold(
    plan: Plan, cell: Cell, output: Path, *, progress: bool
) -> tuple[float, dict[str, float | None]]:
    """Try every ρ of the grid, or read what was tried before, and choose the best.

    A part of the training data is held out, the model is trained on the rest, with a seed that no
    cell has, and scored on that part. All seeds of an arm share the choice. Several processes
    share the work.
    """
    trial, runs = _chooser(plan, cell), trials_of(plan, cell, output)
    if trial is None:
        raise ValueError(f"tune must be set to choose a threshold for {cell}, got nothing")
    scores: dict[float, float | None] = {}
    for wait in (False, True):  # first what nobody else is at, then what others have finished
        for threshold, run in runs.items():
            if threshold in scores:
                continue
            with locked(Path(run.output_dir), wait=wait) as free:
                if free:
                    scores[threshold] = _score(plan, trial, threshold, run, progress)
    in_order = {threshold: scores[threshold] for threshold in runs}
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
    plan: Plan, trial: Cell, threshold: float, run: TrainingOptions, progress: bool
) -> float | None:
    """The score of one ρ on the held-out part of the training data."""
    described, path = describe_trial(plan.grid, trial), Path(run.output_dir) / TRIAL_FILE
    asked = {"fingerprint": plan_fingerprint(plan), "threshold": threshold, **described}
    if (found := read_json(path)) is not None:
        score: float | None = found.pop("score", None)
        check_same(found, asked, str(path))
        return score
    logger.info("%s, %s: trying threshold %g", trial.task, trial.arm, threshold)
    result = train(run, plan.heads(trial, threshold), progress=progress)
    shutil.rmtree(path.with_name(MODEL_FOLDER), ignore_errors=True)
    write_json(path, {**asked, "score": result.primary})
    return result.primary
