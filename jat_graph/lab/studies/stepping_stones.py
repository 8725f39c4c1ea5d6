"""Cells of the kind ``stepping-stones``: an encoder has its lessons, then answers questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jat_graph.lab.store import locked
from jat_graph.lab.studies.cells import Cell, Plan, cell_folder, output_of
from jat_graph.lab.studies.curriculum import (
    KIND,
    LESSONS,
    PRETRAINED,
    REPORTED,
    attempts_of,
    check_curriculum,
    lessons_of,
    passing_line,
)
from jat_graph.lab.studies.fine_tuning import Chosen, make_record
from jat_graph.lab.studies.grid import Grid, task_of
from jat_graph.lab.studies.kinds import Caption, Kind, enter_kind
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.small_models import (
    encoder_config,
    layers_of,
    small_tokenizer,
    write_model,
)
from jat_graph.lab.studies.timing import Job, TrainingJob
from jat_graph.training.data import TRAIN
from jat_graph.training.options import TrainingOptions
from jat_graph.training.runner import train
from jat_graph.training.storage import (
    MODEL_FOLDER,
    RESULTS_FILE,
    prepare_folder,
    read_json,
    replacing_folder,
)

_PLACES = ("model", "output_dir", "resume")
_SEEDS_APART = 10_000  # of two attempts; no cell has as high a seed


class SteppingStones(Kind):
    """An encoder is trained on comparisons and asked questions.

    A cell's task names the encoder: of ``"2 layers"`` all weights are drawn from the seed,
    ``"pretrained"`` is the plan's model. It learns the grid's lessons, without heads of an arm; one
    from scratch that fails a lesson is drawn anew. All arms begin with what these left, so that
    they differ in nothing but their heads, which come with the questions of all numbers of steps,
    see :class:`jat_graph.tasks.SteppingStonesTask`.
    """

    task_is_model = True

    def check(self, grid: Grid, where: str) -> None:
        """Refuse encoders, lessons and arms that do not fit each other."""
        check_curriculum(grid, where)

    def run_cell(self, cell: Cell, plan: Plan, folder: Path, progress: bool) -> Record:
        """Teach the lessons, if no other arm has, then train and score on the questions.

        Beside the scores of the questions, ``scores["lessons"]`` has that of each lesson. The
        answers are those of the test set, whose names no training text has. Time and steps are
        those of the questions. The weights of the lessons are kept.
        """
        heads = plan.heads(cell)
        layers = layers_of(cell.task)
        with locked(_lessons_folder(folder), wait=True):  # other arms may be at the lessons
            if layers is not None and not _encoder(folder).exists():
                prepare_folder(_lessons_folder(folder))
                with replacing_folder(_encoder(folder)) as temporary:
                    write_model(temporary, encoder_config(layers), small_tokenizer())
            while waiting := _waiting(cell, plan, folder):
                train(waiting[0], progress=progress)
            *lessons, questions = _current_attempt(cell, plan, folder)
        result = train(questions, heads, progress=progress)
        record = make_record(cell, Chosen(questions, heads), result)
        return replace(
            record,
            scores=result.metrics | {LESSONS: _lesson_scores(plan.grid, lessons)},
            answers={name: said for name, said in record.answers.items() if name == REPORTED},
            examples={split: record.examples[split] for split in (TRAIN, REPORTED)},
            all_examples={split: record.all_examples[split] for split in (TRAIN, REPORTED)},
        )

    def job(
        self, cell: Cell, plan: Plan, scratch: Path, lesson: TrainingOptions | None = None
    ) -> Job:
        """Questions or a lesson with first weights, as those of a run may not be there."""
        run = lesson or plan.options(cell, scratch, task=task_of(plan.grid, cell.task).name)
        heads = None if lesson is not None else plan.heads(cell)
        layers = layers_of(cell.task)
        if layers is None:
            return TrainingJob(replace(run, model=plan.model), heads)
        depth = run.depth or layers
        encoder = scratch / f"{depth}-layers"
        if not encoder.exists():
            write_model(encoder, encoder_config(depth), small_tokenizer())
        return TrainingJob(replace(run, model=str(encoder), from_scratch=True), heads)

    def lessons(self, cell: Cell, plan: Plan, output: Path) -> list[TrainingOptions]:
        """The lessons that are not learnt, without those of attempts that may come."""
        return _waiting(cell, plan, cell_folder(output, cell))

    def shown(self, record: Record) -> Mapping[str, Iterable[str]]:
        """What was scored on the test set, of each number of steps, too."""
        return {REPORTED: record.scores[REPORTED]}

    def caption(self, results: Results) -> Caption:
        """Name the encoders, what chance is, and with which encoders arms were compared."""
        tasks = {record.task for record in results.records}
        scratch = ["encoders from scratch"] if tasks - {PRETRAINED} else []
        models = " and ".join([f"model {results.model}"] * (PRETRAINED in tasks) + scratch)
        lessons = ", which had lessons" if lessons_of(results.grid) else ""
        return Caption(
            models=f"{models[:1].upper()}{models[1:]}{lessons}",
            data="texts made by the library",
            trained="cells above, without the lessons",
            remarks=(passing_line(results),),
        )


enter_kind(KIND, SteppingStones())


def _waiting(cell: Cell, plan: Plan, folder: Path) -> list[TrainingOptions]:
    """Return the lessons of the current attempt that are not learnt."""
    *lessons, _ = _current_attempt(cell, plan, folder)
    return [lesson for lesson in lessons if _metrics(lesson) is None]


def _current_attempt(cell: Cell, plan: Plan, folder: Path) -> list[TrainingOptions]:
    """Return the runs of the first attempt that has failed no lesson yet, or of the last one."""
    for attempt in range(attempts_of(plan.grid, cell.task)):
        runs = _runs(cell, plan, folder, attempt)
        if not _is_failed(plan.grid, runs[:-1]):
            break
    return runs


def _is_failed(grid: Grid, runs: Sequence[TrainingOptions]) -> bool:
    """Tell whether a lesson that is learnt was failed."""
    lessons = lessons_of(grid)
    return any(lessons[name].is_failed(it) for name, it in _lesson_scores(grid, runs).items())


def _lesson_scores(grid: Grid, runs: Sequence[TrainingOptions]) -> dict[str, float | None]:
    """Return what counts of each lesson that is learnt, by its name."""
    return {
        name: lesson.score(metrics)
        for (name, lesson), run in zip(lessons_of(grid).items(), runs, strict=True)
        if (metrics := _metrics(run)) is not None
    }


def _runs(cell: Cell, plan: Plan, folder: Path, attempt: int) -> list[TrainingOptions]:
    """Return the options of the lessons and of the questions; each goes on from the one before."""
    drawn = layers_of(cell.task)
    layers = drawn or plan.shape[0]
    begin: dict[str, Any] = {"model": plan.model}
    if drawn is not None:
        begin = {"model": str(_encoder(folder)), "from_scratch": True}
    place = _lessons_folder(folder) / f"attempt-{attempt + 1}"
    own = plan.grid.task_training.get(cell.task, {})  # a grid's lessons are for all encoders
    seed = cell.seed + attempt * _SEEDS_APART
    runs: list[TrainingOptions] = []
    for name, lesson in lessons_of(plan.grid).items():
        depth = lesson.depth(layers, drawn=drawn is not None)
        asked = {"task": lesson.task, "depth": depth, **lesson.options, **own}
        output = place / name
        runs.append(plan.options(cell, output, seed=seed, **begin | asked))
        begin = {"model": str(output / MODEL_FOLDER)}
    asked = {"task": task_of(plan.grid, cell.task).name, "depth": layers}
    return [*runs, plan.options(cell, folder, **asked | begin)]


def _metrics(lesson: TrainingOptions) -> dict[str, Any] | None:
    """Return what a finished lesson scored, wherever the folder of the experiment was by then."""
    found = read_json(Path(lesson.output_dir) / RESULTS_FILE)
    if found is None or _plain(found["options"]) != _plain(lesson.to_dict()):
        return None
    metrics: dict[str, Any] = found["metrics"]
    return metrics


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a lesson, without the places of its model and of what it writes."""
    return {name: value for name, value in options.items() if name not in _PLACES}


def _lessons_folder(folder: Path) -> Path:
    """Return what the arms of a cell share; a run is known by the whole path of its model."""
    return output_of(folder.resolve()) / "lessons" / folder.parents[1].name / folder.name


def _encoder(folder: Path) -> Path:
    return _lessons_folder(folder) / "encoder"
