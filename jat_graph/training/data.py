"""A task's splits as token ids."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks import LabelledTask, Task
from jat_graph.training.objectives.base import Encoded, Objective, draw_groups
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
    folder = None if options.data_dir is None else Path(options.data_dir)
    splits = objective.task.load(folder, [name for name in names if name != HELD_OUT])
    if options.held_out:
        splits |= _hold_out(splits[TRAIN], objective.task, options.held_out)
    encoded = {
        name: objective.encode(
            splits[name],
            options.max_train_samples if name == TRAIN else options.max_eval_samples,
        )
        for name in names
    }
    cuts = {name: split.cut for name, split in encoded.items()}
    said = [f"of {name}, {cut}" for name, cut in cuts.items() if cut is not None and cut.documents]
    if said:
        logger.warning("max_length=%d cuts texts: %s", options.max_length, "; ".join(said))
    return encoded


def _hold_out(rows: Dataset, task: Task, share: float) -> dict[str, Dataset]:
    """Split training data in two, rows about one text or of one example together."""
    column = task.source or (task.group if isinstance(task, LabelledTask) else None)
    groups = range(len(rows)) if column is None else rows[column]
    held, kept = draw_groups(groups, round(share * len(rows)))
    if not held or not kept:
        raise ValueError(
            f"held_out must leave some of the {len(rows)} rows of task {task.name} on both sides, "
            f"got {share}"
        )
    return {TRAIN: rows.select(kept), HELD_OUT: rows.select(held)}
