"""Our options as those of transformers' Trainer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, TrainingArguments

from jat_graph.tasks import Task
from jat_graph.training.data import dev_splits
from jat_graph.training.options import TrainingOptions
from jat_graph.training.storage import CHECKPOINT_FOLDER

_LOGGING_STEPS = 25

logger = logging.getLogger(__name__)


def check_device(options: TrainingOptions) -> None:
    """Refuse fp16 without a GPU, and warn of bf16 on a CPU that does not multiply in it."""
    if options.mixed_precision == "fp16" and on_cpu(options):
        raise ValueError("mixed_precision='fp16' needs a GPU, got the CPU; use 'bf16' or 'no'")
    if options.mixed_precision == "bf16" and on_cpu(options) and not _multiplies_in_bf16():
        logger.warning(
            "mixed_precision='bf16' may be slower than 'no' here: this CPU does not multiply in it"
        )


def precision_of(options: TrainingOptions) -> str:
    """The numbers that a run computes in: of "auto" bf16 where the device multiplies in it."""
    if options.mixed_precision != "auto":
        return options.mixed_precision
    if on_cpu(options):
        return "bf16" if _multiplies_in_bf16() else "no"
    on_gpu = torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bf16" if on_gpu else "no"


def _multiplies_in_bf16() -> bool:
    """Whether the CPU has instructions for it, such as avx512_bf16 and amx_bf16."""
    return any("bf16" in name and has for name, has in torch.cpu.get_capabilities().items())


def on_cpu(options: TrainingOptions) -> bool:
    """Whether a run takes place on the CPU: it was asked for, or there is no accelerator."""
    return options.device == "cpu" or not torch.accelerator.is_available()


def layers_to_shard(model: PreTrainedModel) -> list[str]:
    """The classes of a model's layers, which are sharded one by one.

    Those that transformers would not split, less those that hold the table of tokens: accelerate
    shards that table by itself, and fails where it was sharded already.
    """
    table = model.get_input_embeddings()
    holders = {
        type(module).__name__
        for module in model.modules()
        if any(inner is table for inner in module.modules())
    }
    return sorted(set(model._no_split_modules or ()) - holders)


def training_arguments(
    options: TrainingOptions,
    task: Task,
    folder: Path,
    *,
    progress: bool,
    layers: list[str] | None = None,
) -> TrainingArguments:
    """Our options in the Trainer's words; ``layers`` are the classes to shard, if any."""
    every = "epoch" if options.save_steps is None else "steps"
    ours: dict[str, Any] = {
        "save_total_limit": 1,
        "logging_steps": _LOGGING_STEPS,
        "logging_nan_inf_filter": False,  # a loss that is not finite stops the run
        "dataloader_pin_memory": not on_cpu(options),
        "disable_tqdm": not progress,
        "report_to": "none",  # TensorBoard comes as a callback, with a folder of our choice
    }
    return TrainingArguments(
        **ours | options.trainer,
        output_dir=str(folder / CHECKPOINT_FOLDER),
        seed=options.seed,
        data_seed=options.seed,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        per_device_eval_batch_size=options.sequences_per_evaluation,
        gradient_accumulation_steps=options.gradient_accumulation,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        warmup_steps=options.warmup,  # below 1: a share of all steps
        bf16=precision_of(options) == "bf16",
        fp16=precision_of(options) == "fp16",
        train_sampling_strategy="group_by_length" if options.group_by_length else "random",
        eval_strategy=every if options.select_best else "no",
        eval_steps=options.save_steps,
        save_strategy=every,
        save_steps=options.save_steps or 1,
        load_best_model_at_end=options.select_best,
        metric_for_best_model=f"{dev_splits(task, options)[0]}_{task.primary_metric}",
        greater_is_better=task.greater_is_better,
        fsdp=True if options.fully_sharded else None,  # type: ignore[arg-type]
        fsdp_config={"transformer_layer_cls_to_wrap": layers} if options.fully_sharded else None,
        use_cpu=on_cpu(options),
    )
