"""How many examples a run reads, and uses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.tasks import LabelledTask, get_task
from jat_graph.training.data import TRAIN, dev_splits
from jat_graph.training.objectives.base import draw

if TYPE_CHECKING:
    from datasets import Dataset

    from jat_graph.training.options import TrainingOptions


def count_examples(options: TrainingOptions) -> tuple[dict[str, int], dict[str, int]]:
    """Count the examples of each split that a run uses, and all that there are."""
    task = get_task(options.task)
    folder = None if options.data_dir is None else Path(options.data_dir)
    group = task.group if isinstance(task, LabelledTask) else None
    limits = dict.fromkeys(dev_splits(task, options), options.max_eval_samples)
    limits = {TRAIN: options.max_train_samples, **limits}
    splits = task.load(folder, list(limits))
    used = {name: _examples(draw(splits[name], limits[name], group), group) for name in limits}
    return used, {name: _examples(splits[name], group) for name in limits}


def _examples(rows: Dataset, group: str | None) -> int:
    return len(rows) if group is None else len(set(rows[group]))
