"""Cells of the kind ``stepping-stones``: an encoder has its lessons, then answers questions."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jat_graph.experiments.cells import Cell, Plan, cell_folder, output_of
from jat_graph.experiments.curriculum import REPORTED, layers_of, lessons_of
from jat_graph.experiments.fine_tuning import count_examples
from jat_graph.experiments.records import locked
from jat_graph.experiments.results import Record
from jat_graph.experiments.small_encoder import write_encoder
from jat_graph.experiments.timing import time_run
from jat_graph.training.data import TRAIN
from jat_graph.training.options import Heads, TrainingOptions
from jat_graph.training.runner import train
from jat_graph.training.storage import ANSWERS_FILE, MODEL_FOLDER, RESULTS_FILE, read_json

TASK = "steppingstones"

_PLACES = ("model", "output_dir", "resume")


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
    heads = plan.heads(cell)
    layers = layers_of(cell.task)
    if layers is not None:
        with locked(_lessons_folder(folder), wait=True):  # other arms may be at the lessons
            if not (_encoder(folder) / "config.json").exists():
                write_encoder(_encoder(folder), layers)
            for lesson in lessons:
                if not _is_learnt(lesson):
                    train(lesson, progress=progress)
    result = train(questions, heads, progress=progress)
    shutil.rmtree(folder / MODEL_FOLDER, ignore_errors=True)
    answers = read_json(folder / ANSWERS_FILE) or {}
    used, whole = count_examples(questions)
    return Record(
        task=cell.task,
        arm=cell.arm,
        seed=cell.seed,
        scores=result.metrics,
        answers={REPORTED: answers[REPORTED]} if REPORTED in answers else {},
        seconds=result.seconds,
        steps=result.steps,
        device=result.device,
        heads=None if heads is None else heads.to_dict(),
        examples={split: used[split] for split in (TRAIN, REPORTED)},
        all_examples={split: whole[split] for split in (TRAIN, REPORTED)},
    )


def waiting_lessons(plan: Plan, cells: Sequence[Cell], output: Path) -> list[TrainingOptions]:
    """Return the lessons that cells wait for.

    Args:
        plan: The plan.
        cells: The cells.
        output: Folder of the experiment.

    Returns:
        Their options; a lesson that several arms wait for is there once.
    """
    runs = [run for cell in cells for run in _runs(cell, plan, cell_folder(output, cell))[:-1]]
    return [run for run in dict.fromkeys(runs) if not _is_learnt(run)]


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
    questions = plan.options(cell, Path("output"), task=TASK)
    layers = layers_of(cell.task)
    if layers is None:
        return time_run(questions, plan.heads(cell))
    return _time_drawn(questions, layers, plan.heads(cell))


def time_lesson(lesson: TrainingOptions) -> float:
    """Time a few steps of a lesson, and say what all of it would take.

    Args:
        lesson: Its options, as :func:`waiting_lessons` returned them.

    Returns:
        Seconds, without the time to load model and data.

    Raises:
        ValueError: If the run cannot begin.
        OSError: If nothing can be written to the system's folder for temporary files.
    """
    return _time_drawn(lesson, lesson.depth or 1, None)


def _time_drawn(run: TrainingOptions, layers: int, heads: Heads | None) -> float:
    """Time a run with weights that are drawn, as those that it goes on from may not be there."""
    with tempfile.TemporaryDirectory() as scratch:
        write_encoder(Path(scratch), layers)
        return time_run(replace(run, model=scratch, from_scratch=True), heads)


def _runs(cell: Cell, plan: Plan, folder: Path) -> list[TrainingOptions]:
    """Return the options of the lessons and of the questions; each goes on from the one before."""
    layers = layers_of(cell.task)
    if layers is None:
        return [plan.options(cell, folder, task=TASK)]
    place = _lessons_folder(folder)
    begin: dict[str, Any] = {"model": str(_encoder(folder)), "from_scratch": True}
    runs: list[TrainingOptions] = []
    for number, lesson in enumerate(lessons_of(plan.grid), start=1):
        asked = {"task": lesson.task, "depth": lesson.depth(layers), **lesson.options}
        runs.append(plan.options(cell, place / f"{number}-{lesson.task}", **begin | asked))
        begin = {"model": str(Path(runs[-1].output_dir) / MODEL_FOLDER)}
    return [*runs, plan.options(cell, folder, task=TASK, depth=layers, **begin)]


def _is_learnt(lesson: TrainingOptions) -> bool:
    """Tell whether a lesson is finished, wherever the folder of the experiment was by then."""
    found = read_json(Path(lesson.output_dir) / RESULTS_FILE)
    return found is not None and _plain(found["options"]) == _plain(lesson.to_dict())


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a lesson, without the places of its model and of what it writes."""
    return {name: value for name, value in options.items() if name not in _PLACES}


def _lessons_folder(folder: Path) -> Path:
    """Return what the arms of a cell share; a run is known by the whole path of its model."""
    return output_of(folder.resolve()) / "lessons" / folder.parents[1].name / folder.name


def _encoder(folder: Path) -> Path:
    return _lessons_folder(folder) / "encoder"
