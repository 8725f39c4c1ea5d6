"""Measure without training: a trained model's scores, and thresholds on a task's own texts."""

from __future__ import annotations

import json
import logging
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.config import JatConfig, check_calibration
from jat_graph.tasks import get_task
from jat_graph.training.data import TRAIN, dev_splits, load_splits
from jat_graph.training.heads import Heads, Others, attach_heads, join_kinds, kinds_of
from jat_graph.training.loading import (
    check_heads,
    load_for_training,
    load_trained,
    trained_length,
)
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import Encoded, Objective
from jat_graph.training.options import TrainingOptions
from jat_graph.training.pretrained import quiet
from jat_graph.training.processes import join
from jat_graph.training.results import Metrics
from jat_graph.training.runner import require_extra
from jat_graph.training.storage import (
    CALIBRATED_FILE,
    RESULTS_FILE,
    RUN_FILE,
    difference,
    making_folder,
    read_json,
    run_folder,
    write_json,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel


CALIBRATION_BATCHES = 8

logger = logging.getLogger(__name__)


def evaluate(
    model: str,
    task: str,
    data_dir: str | None = None,
    *,
    eval_batch_size: int | None = None,
    max_length: int | None = None,
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
            it. (default: None, as many as in the model's training; 128 where it does not say)
        stride: Tokens that neighbouring windows of a long context share. (default: 128)
        max_eval_samples: Evaluate on this many of each dev set. (default: None, all)
        mixed_precision: ``"no"``, ``"auto"``, ``"bf16"`` or ``"fp16"``. (default: "no")
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
            max_length=TrainingOptions.max_length if max_length is None else max_length,
            stride=stride,
            max_eval_samples=max_eval_samples,
            mixed_precision=mixed_precision,
            device=device,
        )
        processes = join(options)
        if max_length is None:
            options = processes.agree(partial(_as_trained, options))
        objective, trained, splits = processes.agree(lambda: _load(options))
        args = training_arguments(options, objective.task, Path(scratch), progress=progress)
        trainer = build_trainer(trained, objective, processes, args, splits, None)
        return score(trainer, objective, processes, splits)[0]


def _as_trained(options: TrainingOptions) -> TrainingOptions:
    """Let sequences have as many tokens as in the model's training, and say so."""
    length = trained_length(options.model)
    if length is None:
        return options
    logger.info("max_length=%d, as in training", length)
    return replace(options, max_length=length)


def _load(
    options: TrainingOptions,
) -> tuple[Objective[Any], PreTrainedModel, dict[str, Encoded]]:
    from jat_graph.training.arguments import check_device

    task = get_task(options.task)
    check_device(options)
    objective = objective_for(task, options)
    return objective, load_trained(objective), load_splits(objective, dev_splits(task, options))


def calibrate_on_task(
    options: TrainingOptions,
    config: JatConfig | None = None,
    density: float = 0.05,
    *,
    batches: int = CALIBRATION_BATCHES,
    beside: Others | None = None,
) -> JatConfig:
    """Measure thresholds on training texts, with the pretrained model before any training.

    Args:
        options: The run whose model, task, data and batch size are meant.
        config: Settings of the jump heads, threshold aside. (default: None, which means
            :class:`JatConfig`'s)
        density: Share of token pairs to join in each head. (default: 0.05)
        batches: Batches of ``options.batch_size`` texts to measure on, drawn once for all seeds;
            ``calibrate`` holds some of them out. (default: 8)
        beside: Triplet heads that the model has, too. (default: None)

    Returns:
        The config with a table of thresholds, an arm for :func:`jat_graph.training.compare`.

    Raises:
        ValueError: If an option or the density does not fit.
        OSError: If data cannot be read.
    """
    require_extra()
    # Once for all processes: thresholds must be the same in each, to the last bit.
    return join(options).on_main(lambda: _measure(options, config, density, batches, beside))


def calibrate_once(options: TrainingOptions, heads: Heads, density: float) -> Heads:
    """Measure thresholds for the jump heads of a run, or read what was measured for it before.

    A run that goes on, perhaps elsewhere, must have the same thresholds, to the last bit.
    """
    require_extra()
    jump, triplet = kinds_of(heads)

    def work() -> JatConfig:
        folder = run_folder(options)
        asked = _asked(options, heads, density)
        found = read_json(folder / CALIBRATED_FILE) or {}
        config: dict[str, Any] | None = found.pop("config", None)
        if config is not None and found == asked:
            return JatConfig.from_dict(config)
        wanted = dict(asked)
        options_of = [part.pop("options", {}) for part in (found, wanted)]  # named without a prefix
        changed = difference(*options_of) or difference(found, wanted)
        if config is not None and (folder / RUN_FILE).exists() | (folder / RESULTS_FILE).exists():
            raise ValueError(f"output_dir {folder} holds a run with {changed}: name another folder")
        with making_folder(folder):
            measured = _measure(options, jump, density, CALIBRATION_BATCHES, triplet)
            write_json(folder / CALIBRATED_FILE, {**asked, "config": measured.to_dict()})
        return measured

    return join_kinds(join(options).on_main(work), triplet) or heads


def _asked(options: TrainingOptions, heads: Heads, density: float) -> dict[str, Any]:
    """What thresholds depend on, in types of JSON."""
    elsewhere = {"output_dir": "", "resume": False}  # which changes nothing
    asked = {"density": density, "heads": heads.to_dict(), "options": options.to_dict() | elsewhere}
    plain: dict[str, Any] = json.loads(json.dumps(asked))
    return plain


def _measure(
    options: TrainingOptions,
    config: JatConfig | None,
    density: float,
    batches: int,
    beside: Others | None,
) -> JatConfig:
    from jat_graph.inspection.calibration import calibrate
    from jat_graph.training.arguments import check_device

    config = config or JatConfig()
    check_calibration(density, config)
    check_device(options)
    if batches < 1:
        raise ValueError(f"batches must be a positive integer, got {batches}")
    wanted = batches * options.batch_size
    drawn = replace(options, max_train_samples=min(wanted, options.max_train_samples or wanted))
    objective = objective_for(get_task(options.task), drawn)
    check_heads(objective, join_kinds(config, beside))
    texts = list(load_splits(objective, (TRAIN,))[TRAIN].features)
    with quiet():
        model = load_for_training(objective)
    attach_heads(model, beside)
    padded = [
        objective.collate(texts[start : start + options.batch_size])
        for start in range(0, len(texts), options.batch_size)
    ]
    inputs = [
        {name: tensor for name, tensor in batch.items() if name not in objective.labels}
        for batch in padded
    ]
    return calibrate(model, inputs, density=density, config=config)
