"""A task's splits as token ids."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from jat_graph.tasks import Task
from jat_graph.training.objectives.base import Encoded, Objective

TRAIN = "train"

logger = logging.getLogger(__name__)


def dev_splits(task: Task) -> tuple[str, ...]:
    """Return the splits a task is evaluated on; the first decides which weights are best.

    Args:
        task: The task.

    Returns:
        Their names: MNLI has two.
    """
    return tuple(split for split in task.splits if split != TRAIN)


def load_splits(objective: Objective[Any], names: tuple[str, ...]) -> dict[str, Encoded]:
    """Load and encode a task's splits, and warn once if texts are longer than the limit.

    Args:
        objective: The task and the run's options.
        names: The splits wanted.

    Returns:
        The encoded splits by name.

    Raises:
        OSError: If a file is missing or cannot be read.
        ValueError: If a row is malformed, or a sequence has no room.
    """
    options = objective.options
    folder = None if options.data_dir is None else Path(options.data_dir)
    splits = objective.task.load(folder, names)
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
