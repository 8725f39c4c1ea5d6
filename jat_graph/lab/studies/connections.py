"""Cells of the kind ``connections``: which entities the heads of a model link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from jat_graph.hf import attached_config
from jat_graph.hf.filters import RULES
from jat_graph.lab.parsing import STRICT, parse
from jat_graph.lab.studies.cells import Cell, Plan
from jat_graph.lab.studies.fine_tuning import Chosen, FineTuning, choose_heads, make_record
from jat_graph.lab.studies.grid import Grid, check_columns, check_tasks, task_metrics
from jat_graph.lab.studies.kinds import Caption, enter_kind
from jat_graph.lab.studies.links import (
    ALL,
    DIFFERENT,
    EXAMPLE,
    MIXED,
    SELF,
    SPREADS,
    TypedText,
    link_names,
    measure_links,
)
from jat_graph.lab.studies.results import Record, Results
from jat_graph.lab.studies.timing import Job
from jat_graph.tasks import TaggingTask, get_task
from jat_graph.tasks.tagging import OUTSIDE
from jat_graph.training.heads import attach_heads
from jat_graph.training.loading import load_for_training, load_trained
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import draw
from jat_graph.training.options import TrainingOptions
from jat_graph.training.pretrained import quiet
from jat_graph.training.runner import train
from jat_graph.training.storage import MODEL_FOLDER, read_json, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Shares: TypeAlias = dict[str, dict[str, float | None]]

LINKS_FILE = "links.json"
SPLIT = "validation"

# Pairs of the paper's example: among its three things, of the two that a third compares, and of
# words with themselves.
THINGS, FAR, ITSELF = "book, pencil, computer", "pencil, computer", "self, example"
_FAR = EXAMPLE._replace(types=[kind if kind in FAR.split(", ") else None for kind in EXAMPLE.types])


@dataclass(frozen=True)
class _Own:
    """The table that a grid has under the name of this kind: which model a cell measures."""

    __pydantic_config__ = STRICT

    model: Literal["trained", "pretrained"] = "trained"


class Connections(FineTuning):
    """A tagger of named entities is trained, and it is measured which words its heads link.

    Figure 7 is about links between tokens of different entity types, so the model is trained for
    the entities first. ``connections.model = "pretrained"`` in the grid measures it as it comes,
    with the arm's heads, and trains nothing. Beside the dev set the paper's example is measured,
    "Book cost more than pencil. Book cost less than computer.": links among its three things, those
    of pencil and computer alone, and of words with themselves. That is Figure 2.
    :func:`jat_graph.lab.studies.links.count_links` says what is counted.
    """

    def check(self, grid: Grid, where: str) -> None:
        """Refuse tasks without entities, arms without links, and an unknown model."""
        check_tasks(grid, where)
        parse(_Own, grid.own, f"{where}, [connections]")
        for task in map(get_task, grid.tasks):
            if not isinstance(task, TaggingTask):
                kind = "tasks of connections must be of named entities, as wnut17"
                raise ValueError(f"{where}: {kind}, got {task.name!r}")
        kinds = (DIFFERENT, MIXED, ALL, SELF)
        counted = [name for kind in kinds for name in link_names(kind)]
        counted += [f"{kind} > {name}" for kind in (THINGS, FAR, ITSELF) for name in SPREADS]
        check_columns(grid, (*task_metrics(grid), *counted), where)
        for arm in grid.arms:
            if arm.heads in ("triplet", *RULES) or arm.triplets is not None:
                kind = arm.heads if arm.heads in RULES else "triplet"
                raise ValueError(
                    f"{where}: arm {arm.name!r} has {kind} heads, which have no links to measure"
                )

    def run_cell(self, cell: Cell, plan: Plan, folder: Path, progress: bool) -> Record:
        """Train a tagger and measure its links.

        Beside the scores of the dev set, ``scores["all layers"]``, ``scores["layer 1"]`` and so on
        have a share by what is counted, of the dev set and of the paper's example.
        """
        chosen = choose_heads(cell, plan, folder, progress)
        if not _is_trained(plan.grid):
            return _pretrained(cell, chosen)
        result = train(chosen.options, chosen.heads, progress=progress)
        links = read_json(folder / LINKS_FILE)
        if links is None:
            links = _measure_trained(folder, chosen.options)
            write_json(folder / LINKS_FILE, links)  # from here on the weights may go
        record = make_record(cell, chosen, result)
        return replace(record, scores={**record.scores, **links})

    def job(
        self, cell: Cell, plan: Plan, scratch: Path, lesson: TrainingOptions | None = None
    ) -> Job | None:
        """A training, if there is one."""
        is_run = lesson is not None or _is_trained(plan.grid)
        return super().job(cell, plan, scratch, lesson) if is_run else None

    def shown(self, record: Record) -> Mapping[str, Iterable[str]]:
        """All that was scored and measured."""
        return record.scores

    def caption(self, results: Results) -> Caption:
        """Say so where nothing was trained."""
        shown = super().caption(results)
        untrained = ("The model is measured as it comes, with the heads of each arm.",)
        return shown if _is_trained(results.grid) else replace(shown, remarks=untrained)


enter_kind("connections", Connections())


def _is_trained(grid: Grid) -> bool:
    return parse(_Own, grid.own, f"grid {grid.name!r}, [connections]").model == "trained"


def _pretrained(cell: Cell, chosen: Chosen) -> Record:
    """Measure the model as it comes, with the arm's heads."""
    options, heads = chosen.options, chosen.heads
    objective = objective_for(get_task(cell.task), options)
    with quiet():
        model = load_for_training(objective)
    attach_heads(model, heads, objective.saved_tokenizer)
    texts = _dev_set(options)
    return Record(
        task=cell.task,
        arm=cell.arm,
        seed=cell.seed,
        scores=_measure(model, objective.tokenizer, texts, options),
        heads=None if heads is None else heads.to_dict(),
        examples={SPLIT: len(texts)},
        threshold=chosen.threshold,
        tuning=chosen.tuning,
    )


def _measure_trained(folder: Path, options: TrainingOptions) -> Shares:
    """Measure the model that a run left."""
    trained = replace(options, model=str(folder / MODEL_FOLDER))
    objective = objective_for(get_task(options.task), trained)
    with quiet():
        model = load_trained(objective)
    return _measure(model, objective.tokenizer, _dev_set(options), options)


def _measure(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[TypedText],
    options: TrainingOptions,
) -> Shares:
    if attached_config(model) is None:
        model.set_attn_implementation("eager")  # SDPA gives no probabilities
    shares = measure_links(model, tokenizer, texts, max_length=options.max_length)
    for text, kind, shown in (
        (EXAMPLE, DIFFERENT, THINGS),
        (_FAR, DIFFERENT, FAR),
        (EXAMPLE, SELF, ITSELF),
    ):
        for layer, found in measure_links(model, tokenizer, [text]).items():
            row = shares.setdefault(layer, {})
            row |= {f"{shown} > {name}": found[f"{kind} > {name}"] for name in SPREADS}
    return shares


def _dev_set(options: TrainingOptions) -> list[TypedText]:
    """Read the dev set as words and types."""
    folder = None if options.data_dir is None else Path(options.data_dir)
    rows = draw(get_task(options.task).load(folder, [SPLIT])[SPLIT], options.max_eval_samples)
    return [
        TypedText(words, [None if tag == OUTSIDE else tag[2:] for tag in tags])
        for words, tags in zip(rows["tokens"], rows["tags"], strict=True)
    ]
