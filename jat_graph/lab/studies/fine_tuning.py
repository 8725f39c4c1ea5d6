"""Cells of the kind ``train``: a model is fine-tuned on a task, and scored on its dev sets."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jat_graph.config import JatConfig
from jat_graph.lab.studies.cells import Cell, Plan, output_of
from jat_graph.lab.studies.examples import count_examples
from jat_graph.lab.studies.grid import Grid, check_columns, check_tasks, task_metrics
from jat_graph.lab.studies.kinds import Kind, enter_kind
from jat_graph.lab.studies.results import Record
from jat_graph.lab.studies.timing import warm_up
from jat_graph.lab.studies.tuning import choose_threshold, tuned_arm
from jat_graph.lab.tables import SECONDS
from jat_graph.training.measuring import calibrate_on_task
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

CALIBRATED_FILE = "calibrated.json"


@dataclass(frozen=True)
class Chosen:
    """What a cell is trained with, after everything is measured that has to be.

    Args:
        options: The run's options.
        heads: Settings of its heads; None for a model without.
        threshold: ρ that tuning chose; None if it did not.
        tuning: Score of each ρ that was tried, by its text.
    """

    options: TrainingOptions
    heads: Heads | None
    threshold: float | None = None
    tuning: dict[str, float | None] | None = None


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
    if tuned_arm(plan, cell) is not None:
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
