"""Cells of the kind ``scratch``: a small model whose weights are all drawn learns a task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.checks.numbers import check_integer
from jat_graph.hf.trial import try_heads
from jat_graph.lab.parsing import STRICT, parse
from jat_graph.lab.studies.arms import build_heads, check_only_heads
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.fine_tuning import Chosen, make_record
from jat_graph.lab.studies.grid import Grid, check_columns, check_tasks, task_metrics
from jat_graph.lab.studies.kinds import Caption, Kind, enter_kind
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.small_models import (
    FEATURES,
    HEADS,
    character_tokenizer,
    decoder_config,
    encoder_config,
    word_tokenizer,
    write_model,
)
from jat_graph.lab.studies.timing import Job, TrainingJob
from jat_graph.tasks import ClassificationTask, LanguageModelTask, Task, WordTask, get_task
from jat_graph.training.data import TRAIN, drawn_rows
from jat_graph.training.estimate import Cost
from jat_graph.training.heads import Heads, kinds_of
from jat_graph.training.objectives import objective_for
from jat_graph.training.options import TrainingOptions
from jat_graph.training.runner import train
from jat_graph.training.storage import prepare_folder, replacing_folder

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedConfig, PreTrainedTokenizerFast

KIND = "scratch"
START_FOLDER = "start"  # of a cell: what its model is made from
_REPORTED = "test"

# What the table of the kind's name decides.
_NOT_OPTIONS = ("depth", "from_scratch")


@dataclass(frozen=True)
class Sizes:
    """The table that a grid has under the name of this kind."""

    __pydantic_config__ = STRICT

    layers: int = 2
    seen: int = 2  # times that training sentences have a word which is known by itself


@dataclass(frozen=True)
class SmallJob:
    """A small model that is trained and scored; nothing is read or written before it is timed."""

    options: TrainingOptions
    heads: Heads | None
    sizes: Sizes

    @property
    def size(self) -> float:
        """The tokens that are trained on, and those that steps stand for."""
        return self._training.size

    def time(self, patience: float) -> Cost:
        """Time a step on a few rows of the task."""
        return self._training.time(patience)

    @cached_property
    def _training(self) -> TrainingJob:
        prepare_start(self.options, self.sizes)
        return TrainingJob(self.options, self.heads)


class Scratch(Kind):
    """A small model learns a task from nothing: an encoder, or a decoder where it says what comes.

    All weights are drawn from the seed, and the tokenizer knows what the training data have: words
    of a text, characters where the next one is to be said. Arms differ in their heads alone.
    """

    from_scratch = True

    def check(self, grid: Grid, where: str) -> None:
        """Refuse tasks that no small model is made for, and arms that differ in more than heads."""
        sizes = _sizes(grid, where)
        check_integer(f"{where}, [{KIND}]: layers", sizes.layers, least=1, below=100)
        check_integer(f"{where}, [{KIND}]: seen", sizes.seen, least=1)
        check_tasks(grid, where)
        for task in map(get_task, grid.tasks):
            if not isinstance(task, ClassificationTask | WordTask | LanguageModelTask):
                wanted = "of classes, of tagged words or of language"
                raise ValueError(f"{where}: tasks must be {wanted}, got {task.name!r}")
        check_columns(grid, tuple(task_metrics(grid)), where)
        for options in (grid.training, *grid.task_training.values()):
            for name in _NOT_OPTIONS:
                if name in options:
                    wanted = f"no {name}, which [{KIND}] decides"
                    got = f"got {options[name]!r}"
                    raise ValueError(f"{where}, [training] must have {wanted}, {got}")
        for arm in grid.arms:
            check_only_heads(arm, f"{where}, arm {arm.name!r}")

    def check_plan(self, plan: Plan) -> None:
        """Refuse a model, and arms that do not fit the small ones."""
        plan.check_no_model()
        for name in plan.grid.tasks:
            task, config = get_task(name), _config(get_task(name), _sizes(plan.grid).layers)
            for arm in plan.grid.arms:
                cell = Cell(name, arm.name, 0)
                auto_class = objective_for(task, plan.options(cell, Path("output"))).auto_class
                try:
                    _try(auto_class, config, _heads(cell, plan))
                except ValueError as error:
                    raise ValueError(f"{name}, arm {arm.name!r}: {error}") from None

    def run_cell(self, cell: Cell, plan: Plan, folder: Path, progress: bool) -> Record:
        """Make a model, train it and score it; kept are the answers of the split that is shown."""
        options, heads = _options(cell, plan, folder), _heads(cell, plan)
        prepare_start(options, _sizes(plan.grid))
        result = train(options, heads, progress=progress)
        record = make_record(cell, Chosen(options, heads), result)
        shown = _reported(record.scores)
        answers = {split: said for split, said in record.answers.items() if split == shown}
        return replace(record, answers=answers)

    def job(
        self, cell: Cell, plan: Plan, scratch: Path, lesson: TrainingOptions | None = None
    ) -> Job:
        """Train one model, made once for all arms."""
        options = _options(cell, plan, scratch / cell.task)
        return SmallJob(options, _heads(cell, plan), _sizes(plan.grid))

    def shown(self, record: Record) -> Mapping[str, Iterable[str]]:
        """The primary metric of the test set, or of the dev set where there is no other."""
        return {_reported(record.scores): (get_task(record.task).primary_metric,)}

    def caption(self, results: Results) -> Caption:
        """Say what the models are."""
        layers = _sizes(results.grid).layers
        return replace(
            super().caption(results),
            models=(
                f"Small models from scratch, of {layers} layer{'s' if layers > 1 else ''}, "
                f"{FEATURES} features and {HEADS} heads"
            ),
        )


enter_kind(KIND, Scratch())


def prepare_start(options: TrainingOptions, sizes: Sizes) -> None:
    """Write what the model of a run is made from, if that is not there."""
    start = Path(options.model)
    if start.exists():
        return
    task = get_task(options.task)
    tokenizer = _tokenizer(task, drawn_rows(options)[TRAIN][0], sizes.seen)
    prepare_folder(start.parent)
    with replacing_folder(start) as temporary:
        write_model(temporary, _config(task, sizes.layers), tokenizer)


def _config(task: Task, layers: int) -> PreTrainedConfig:
    make = decoder_config if isinstance(task, LanguageModelTask) else encoder_config
    return make(layers)


def _tokenizer(task: Task, rows: Dataset, seen: int) -> PreTrainedTokenizerFast | None:
    """Return a tokenizer of what a model is trained on; None for tokens that need none."""
    if isinstance(task, LanguageModelTask):
        return character_tokenizer(rows["text"]) if task.vocabulary_size is None else None
    if isinstance(task, WordTask):
        return word_tokenizer(map(" ".join, rows["tokens"]), seen)
    if not isinstance(task, ClassificationTask):
        raise TypeError(f"task {task.name} must be of a known kind, got {type(task).__name__}")
    return word_tokenizer((text for name in task.text_columns for text in rows[name]), seen)


def _options(cell: Cell, plan: Plan, folder: Path) -> TrainingOptions:
    """Return the options of a cell; a run is known by the whole path of its model."""
    start = folder.resolve() / START_FOLDER
    return plan.options(cell, folder, model=str(start), from_scratch=True)


def _heads(cell: Cell, plan: Plan) -> Heads | None:
    arm = plan.grid.arm(cell.arm)
    return build_heads(arm, layers=_sizes(plan.grid).layers, heads=HEADS)


def _try(auto_class: str, config: PreTrainedConfig, heads: Heads | None) -> None:
    """Attach heads to a model without weights."""
    import transformers

    kinds = tuple(kind for kind in kinds_of(heads) if kind is not None)
    try_heads(getattr(transformers, auto_class), config, kinds)


def _sizes(grid: Grid, where: str | None = None) -> Sizes:
    return parse(Sizes, grid.own, f"{where or f'grid {grid.name!r}'}, [{KIND}]")


def _reported(splits: Iterable[str]) -> str:
    """Return the split that arms are compared on."""
    names = tuple(splits)
    return _REPORTED if _REPORTED in names else names[0]
