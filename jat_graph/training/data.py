"""A task's splits as token ids."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks import LabelledTask, Task, get_task
from jat_graph.training.objectives.base import Encoded, Objective, draw, draw_groups
from jat_graph.training.options import TrainingOptions

if TYPE_CHECKING:
    from datasets import Dataset

TRAIN = "train"
HELD_OUT = "held_out"

logger = logging.getLogger(__name__)


def dev_splits(task: Task, options: TrainingOptions) -> tuple[str, ...]:
    """The splits that a run is evaluated on (MNLI has two); the first decides which are best."""
    if options.held_out:
        return (HELD_OUT,)
    return tuple(split for split in task.splits if split != TRAIN)


def load_splits(objective: Objective[Any], names: tuple[str, ...]) -> dict[str, Encoded]:
    """A task's splits by name, encoded; if texts are longer than the limit, one warning says so."""
    options = objective.options
    splits = _read_splits(objective.task, options, names)
    encoded = {name: objective.encode(splits[name], _limit(options, name)) for name in names}
    cuts = {name: split.cut for name, split in encoded.items()}
    said = [f"of {name}, {cut}" for name, cut in cuts.items() if cut is not None and cut.documents]
    if said:
        logger.warning("max_length=%d cuts texts: %s", options.max_length, "; ".join(said))
    return encoded


def drawn_rows(options: TrainingOptions) -> dict[str, tuple[Dataset, Dataset]]:
    """Of each split that a run reads, the rows that it uses and all."""
    task = get_task(options.task)
    splits = _read_splits(task, options, (TRAIN, *dev_splits(task, options)))
    return {
        name: (draw(rows, _limit(options, name), group_of(task)), rows)
        for name, rows in splits.items()
    }


def group_of(task: Task) -> str | None:
    """The column whose value the rows of one example share; None where a row is an example."""
    return task.group if isinstance(task, LabelledTask) else None


def length_of(ids: list[Any]) -> int:
    """The tokens of a sequence; of a row with several the longest one's."""
    return max(map(len, ids)) if isinstance(ids[0], list) else len(ids)


def _read_splits(
    task: Task, options: TrainingOptions, names: tuple[str, ...]
) -> dict[str, Dataset]:
    folder = None if options.data_dir is None else Path(options.data_dir)
    splits = task.load(folder, [name for name in names if name != HELD_OUT])
    return splits | (_hold_out(splits[TRAIN], task, options.held_out) if options.held_out else {})


def _limit(options: TrainingOptions, name: str) -> int | None:
    return options.max_train_samples if name == TRAIN else options.max_eval_samples


def _hold_out(rows: Dataset, task: Task, share: float) -> dict[str, Dataset]:
    """Split training data in two, rows about one text or of one example together."""
    column = task.source or group_of(task)
    groups = range(len(rows)) if column is None else rows[column]
    held, kept = draw_groups(groups, round(share * len(rows)))
    if not held or not kept:
        raise ValueError(
            f"held_out must leave some of the {len(rows)} rows of task {task.name} on both sides, "
            f"got {share}"
        )
    return {TRAIN: rows.select(kept), HELD_OUT: rows.select(held)}
