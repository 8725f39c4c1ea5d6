"""Score a trained model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks import get_task
from jat_graph.training.data import dev_splits, load_splits
from jat_graph.training.loading import load_trained
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import Encoded, Objective
from jat_graph.training.options import TrainingOptions
from jat_graph.training.processes import join
from jat_graph.training.quiet import quiet
from jat_graph.training.results import Metrics
from jat_graph.training.runner import require_extra

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def evaluate(
    model: str,
    task: str,
    data_dir: str | None = None,
    *,
    eval_batch_size: int | None = None,
    max_length: int = 128,
    stride: int = 128,
    max_eval_samples: int | None = None,
    mixed_precision: str = "no",
    device: str = "auto",
    progress: bool = True,
) -> Metrics:
    """Score a trained model on every dev set of its task.

    Args:
        model: Folder that :func:`jat_graph.training.train` wrote (``output_dir/model``), or any
            model for the task.
        task: Name of the task.
        data_dir: Folder with the task's original files; None loads the task by its name.
            (default: None)
        eval_batch_size: Sequences per device and batch. (default: None, 8192 tokens)
        max_length: Tokens of a sequence, as :class:`jat_graph.training.TrainingOptions` explains
            it. (default: 128)
        stride: Tokens that neighbouring windows of a long context share. (default: 128)
        max_eval_samples: Evaluate on this many of each dev set. (default: None, all)
        mixed_precision: ``"no"``, ``"bf16"`` or ``"fp16"``. (default: "no")
        device: ``"auto"`` or ``"cpu"``. (default: "auto")
        progress: Show a bar. (default: True)

    Returns:
        ``metrics[dev set][metric]``; None where undefined.

    Raises:
        ValueError: If the task is unknown, or the model is not one for it.
        OSError: If data cannot be read.
    """
    require_extra()
    from jat_graph.training.arguments import training_arguments
    from jat_graph.training.trainer import build_trainer, score

    with tempfile.TemporaryDirectory() as scratch, quiet():
        options = TrainingOptions(
            model=model,
            task=task,
            output_dir=scratch,
            data_dir=data_dir,
            eval_batch_size=eval_batch_size,
            max_length=max_length,
            stride=stride,
            max_eval_samples=max_eval_samples,
            mixed_precision=mixed_precision,
            device=device,
        )
        processes = join(options)
        objective, trained, splits = processes.agree(lambda: _load(options))
        args = training_arguments(options, objective.task, Path(scratch), progress=progress)
        trainer = build_trainer(trained, objective, processes, args, splits, None)
        return score(trainer, objective, processes, splits)[0]


def _load(
    options: TrainingOptions,
) -> tuple[Objective[Any], PreTrainedModel, dict[str, Encoded]]:
    from jat_graph.training.arguments import check_device

    task = get_task(options.task)
    check_device(options)
    objective = objective_for(task, options)
    return objective, load_trained(objective), load_splits(objective, dev_splits(task, options))
