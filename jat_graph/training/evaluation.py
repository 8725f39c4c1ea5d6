"""Score a trained classifier."""

from __future__ import annotations

import tempfile
from pathlib import Path

from jat_graph.tasks import get_task
from jat_graph.training.data import dev_splits, load_splits
from jat_graph.training.loading import load_tokenizer, load_trained
from jat_graph.training.options import TrainingOptions
from jat_graph.training.quiet import quiet
from jat_graph.training.results import Metrics
from jat_graph.training.runner import require_extra, score


def evaluate(
    model: str,
    task: str,
    data_dir: str | None = None,
    *,
    eval_batch_size: int = 64,
    max_length: int = 128,
    max_eval_samples: int | None = None,
    mixed_precision: str = "no",
    device: str = "auto",
    progress: bool = True,
) -> Metrics:
    """Score a classifier on every dev set of its task.

    Args:
        model: Folder that :func:`jat_graph.training.train` wrote (``output_dir/model``), or any
            classifier for the task.
        task: Name of the task.
        data_dir: Folder with the task's original files; None loads the task by its name.
            (default: None)
        eval_batch_size: Sequences per device and batch. (default: 64)
        max_length: Tokens kept of each sequence or pair. (default: 128)
        max_eval_samples: Evaluate on this many of each dev set. (default: None, all)
        mixed_precision: ``"no"``, ``"bf16"`` or ``"fp16"``. (default: "no")
        device: ``"auto"`` or ``"cpu"``. (default: "auto")
        progress: Show a bar. (default: True)

    Returns:
        ``metrics[dev set][metric]``; None where undefined.

    Raises:
        ValueError: If the task is unknown, or the model is no classifier with the task's labels.
        OSError: If data cannot be read.
    """
    from jat_graph.training.trainer import build_trainer, check_device, training_arguments

    require_extra()
    known = get_task(task)
    with tempfile.TemporaryDirectory() as scratch, quiet():
        options = TrainingOptions(
            model=model,
            task=task,
            output_dir=scratch,
            data_dir=data_dir,
            eval_batch_size=eval_batch_size,
            max_length=max_length,
            max_eval_samples=max_eval_samples,
            mixed_precision=mixed_precision,
            device=device,
        )
        check_device(options)
        trained = load_trained(options.model, known)
        tokenizer = load_tokenizer(options.model, max_length)
        splits = load_splits(
            known,
            dev_splits(known),
            tokenizer,
            data_dir=options.data_dir,
            max_length=max_length,
            max_eval_samples=max_eval_samples,
        )
        args = training_arguments(options, known, Path(scratch), progress=progress)
        trainer = build_trainer(trained, tokenizer, known, args, splits, None)
        return score(trainer, known, splits)
