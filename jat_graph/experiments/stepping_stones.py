"""Cells of the kind ``stepping-stones``: an encoder has its lessons, then answers questions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from jat_graph.experiments.arms import build_heads
from jat_graph.experiments.cells import Cell, Plan, cell_folder
from jat_graph.experiments.curriculum import SPLIT, layers_of, lessons_of
from jat_graph.experiments.fine_tuning import count_examples
from jat_graph.experiments.records import locked
from jat_graph.experiments.results import Record
from jat_graph.experiments.small_encoder import HEADS, write_encoder
from jat_graph.experiments.timing import time_run
from jat_graph.training.data import TRAIN
from jat_graph.training.options import Heads, TrainingOptions
from jat_graph.training.runner import train
from jat_graph.training.storage import ANSWERS_FILE, MODEL_FOLDER, RESULTS_FILE, read_json

TASK = "steppingstones"


def run_cell(cell: Cell, plan: Plan, folder: Path, progress: bool) -> Record:
    """Train an encoder on comparisons and ask it questions; what was interrupted goes on.

    The cell's task names the encoder. Of ``"2 layers"`` all weights are drawn from the seed, and
    it learns the grid's lessons, without heads of an arm. All arms begin with what these left, so
    that they differ in nothing but their heads, which come with the questions of all numbers of
    steps, see :class:`jat_graph.tasks.SteppingStonesTask`. ``"pretrained"`` is the plan's model,
    which begins with the questions.

    Args:
        cell: The cell.
        plan: The plan.
        folder: The cell's folder.
        progress: Show a bar.

    Returns:
        The cell, with the scores and the answers of the test set, whose names no training text
        has. Its time and steps are those of the questions. The trained weights are not kept, but
        those of the lessons are.

    Raises:
        ValueError: As :func:`jat_graph.training.train` does.
        OSError: As :func:`jat_graph.training.train` does.
    """
    *lessons, questions = _runs(cell, plan, folder)
    heads = _heads(cell, plan)
    layers = layers_of(cell.task)
    if layers is not None:
        place = _lessons_folder(folder)
        with locked(place, wait=True):  # other arms may be at the lessons, or have been
            write_encoder(place / "encoder", layers)
            for lesson in lessons:
                train(lesson, progress=progress)
    result = train(questions, heads, progress=progress)
    shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
    answers = read_json(folder / ANSWERS_FILE) or {}
    used, whole = count_examples(questions)
    return Record(
        task=cell.task,
        arm=cell.arm,
        seed=cell.seed,
        scores={SPLIT: result.metrics[SPLIT]},
        answers={SPLIT: answers[SPLIT]} if SPLIT in answers else {},
        seconds=result.seconds,
        steps=result.steps,
        device=result.device,
        heads=None if heads is None else heads.to_dict(),
        examples={split: used[split] for split in (TRAIN, SPLIT)},
        all_examples={split: whole[split] for split in (TRAIN, SPLIT)},
    )


def waiting_lessons(plan: Plan, cells: Sequence[Cell], output: Path) -> set[Path]:
    """Return where the lessons are that cells wait for.

    Args:
        plan: The plan.
        cells: The cells.
        output: Folder of the experiment.

    Returns:
        Their folders, of which arms share one.
    """
    folders = {cell: cell_folder(output, cell) for cell in cells}
    return {
        _lessons_folder(folder)
        for cell, folder in folders.items()
        if any(
            not (Path(lesson.output_dir) / RESULTS_FILE).exists()
            for lesson in _runs(cell, plan, folder)[:-1]
        )
    }


def time_questions(cell: Cell, plan: Plan) -> float:
    """Time a few steps of a cell's questions, and say what they would take.

    Args:
        cell: The cell.
        plan: The plan.

    Returns:
        Seconds, without the time to load model and data.

    Raises:
        ValueError: If the run cannot begin.
        OSError: If nothing can be written to the system's folder for temporary files.
    """
    with _drawn_runs(cell, plan) as runs:
        return time_run(runs[-1], _heads(cell, plan))


def time_lessons(cell: Cell, plan: Plan) -> float:
    """Time a few steps of each lesson before a cell, and say what all would take.

    Args:
        cell: The cell.
        plan: The plan.

    Returns:
        Seconds, without the time to load model and data; 0 for the pretrained model.

    Raises:
        ValueError: If a run cannot begin.
        OSError: If nothing can be written to the system's folder for temporary files.
    """
    with _drawn_runs(cell, plan) as runs:
        return sum(time_run(lesson, None) for lesson in runs[:-1])


@contextmanager
def _drawn_runs(cell: Cell, plan: Plan) -> Iterator[list[TrainingOptions]]:
    """Give the runs of a cell, of which each draws its weights, since none has been run."""
    layers = layers_of(cell.task)
    with tempfile.TemporaryDirectory() as scratch:
        runs = _runs(cell, plan, cell_folder(Path(scratch), cell))
        if layers is not None:
            write_encoder(Path(scratch), layers)
            drawn: dict[str, Any] = {"model": scratch, "from_scratch": True, "depth": layers}
            runs = [replace(run, **drawn) for run in runs]
        yield runs


def _runs(cell: Cell, plan: Plan, folder: Path) -> list[TrainingOptions]:
    """Return the options of the lessons and of the questions; each goes on from the one before."""
    layers = layers_of(cell.task)
    if layers is None:
        return [plan.options(cell, folder, task=TASK)]
    place = _lessons_folder(folder)
    begin: dict[str, Any] = {"model": str(place / "encoder"), "from_scratch": True}
    runs: list[TrainingOptions] = []
    for number, lesson in enumerate(lessons_of(plan.grid), start=1):
        asked = {"task": lesson.task, "depth": lesson.depth(layers), **lesson.options}
        runs.append(plan.options(cell, place / f"{number}-{lesson.task}", **begin | asked))
        begin = {"model": str(Path(runs[-1].output_dir) / MODEL_FOLDER)}
    return [*runs, plan.options(cell, folder, task=TASK, depth=layers, **begin)]


def _heads(cell: Cell, plan: Plan) -> Heads | None:
    """Return the settings of the cell's heads."""
    layers = layers_of(cell.task)
    if layers is None:
        return plan.heads(cell)
    return build_heads(plan.grid.arm(cell.arm), layers=layers, heads=HEADS)


def _lessons_folder(folder: Path) -> Path:
    """Return what the arms of a cell share; a run is known by the whole path of its model."""
    return folder.resolve().parents[1] / "lessons" / folder.name
