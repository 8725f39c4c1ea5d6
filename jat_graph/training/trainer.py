"""Transformers' Trainer, made to resume exactly and to stop where it cannot go on."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    DataCollatorWithPadding,
    EvalPrediction,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_pt_utils import LengthGroupedSampler

from jat_graph.hf import attached_config, keep_graphs
from jat_graph.tasks import Task
from jat_graph.training.data import dev_splits
from jat_graph.training.options import TrainingOptions
from jat_graph.training.storage import CHECKPOINT_FOLDER, LOG_FOLDER, one_line_errors

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_LOGGING_STEPS = 25


class SeededLengthSampler(LengthGroupedSampler):
    """Batches of similar length, in an order that depends on seed and epoch only.

    The Trainer's own sampler draws from the global generator, which dropout moves on: after a
    resume, and between two models, its order would differ.

    Args:
        batch_size: Sequences per optimizer step.
        lengths: Length of each sequence.
        seed: Seed of the order.
    """

    def __init__(self, batch_size: int, lengths: list[int], seed: int) -> None:
        super().__init__(batch_size, lengths=lengths)
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; the data loader calls this.

        Args:
            epoch: Number of the epoch, from 0.
        """
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order: Iterator[int] = super().__iter__()  # type: ignore[no-untyped-call]
        return order


class LogBeforeSave(TrainerCallback):
    """Log the loss before each checkpoint, so that no part of a mean is lost with a resume."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log if a checkpoint follows.

        Args:
            args: The Trainer's arguments.
            state: The Trainer's state.
            control: What the Trainer shall do next.
            kwargs: Unused.
        """
        control.should_log = control.should_log or control.should_save

    on_epoch_end = on_step_end


class ClassifierTrainer(Trainer):
    """The Trainer of a sequence classifier."""

    def training_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Run one forward and backward pass.

        Args:
            model: The model.
            inputs: The batch.
            num_items_in_batch: Unused by classifiers.

        Returns:
            The loss.

        Raises:
            FloatingPointError: If the loss is not finite.
        """
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        if not math.isfinite(loss.item()):
            raise FloatingPointError(
                f"the training loss became {loss.item()} at step {self.state.global_step + 1}: "
                f"lower learning_rate (now {self.args.learning_rate:g}) or use another precision"
            )
        return loss

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        lengths = [len(ids) for ids in dataset["input_ids"]]
        batch_size = self.args.train_batch_size * self.args.gradient_accumulation_steps
        return SeededLengthSampler(batch_size, lengths, self.args.seed)

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        folder = Path(str(self.args.output_dir), f"checkpoint-{self.state.global_step}")
        try:
            with one_line_errors(folder):
                super()._save_checkpoint(model, trial)
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def check_device(options: TrainingOptions) -> None:
    """Refuse what this machine cannot do.

    Args:
        options: The run's options.

    Raises:
        ValueError: If fp16 is asked for without a GPU.
    """
    if options.mixed_precision == "fp16" and on_cpu(options):
        raise ValueError("mixed_precision='fp16' needs a GPU, got the CPU; use 'bf16' or 'no'")


def on_cpu(options: TrainingOptions) -> bool:
    """Tell whether a run takes place on the CPU.

    Args:
        options: The run's options.

    Returns:
        True if it was asked for, or there is no accelerator.
    """
    return options.device == "cpu" or not torch.accelerator.is_available()


def training_arguments(
    options: TrainingOptions, task: Task, folder: Path, *, progress: bool
) -> TrainingArguments:
    """Translate our options into the Trainer's.

    Args:
        options: The run's options.
        task: The task.
        folder: The run's folder.
        progress: Show a bar.

    Returns:
        The arguments.
    """
    every = "epoch" if options.save_steps is None else "steps"
    return TrainingArguments(
        output_dir=str(folder / CHECKPOINT_FOLDER),
        seed=options.seed,
        data_seed=options.seed,
        num_train_epochs=options.epochs,
        per_device_train_batch_size=options.batch_size,
        per_device_eval_batch_size=options.eval_batch_size,
        gradient_accumulation_steps=options.gradient_accumulation,
        learning_rate=options.learning_rate,
        weight_decay=options.weight_decay,
        warmup_steps=options.warmup,  # below 1: a share of all steps
        bf16=options.mixed_precision == "bf16",
        fp16=options.mixed_precision == "fp16",
        train_sampling_strategy="group_by_length" if options.group_by_length else "random",
        eval_strategy=every if options.select_best else "no",
        eval_steps=options.save_steps,
        save_strategy=every,
        save_steps=options.save_steps or 1,
        save_total_limit=1,
        load_best_model_at_end=options.select_best,
        metric_for_best_model=f"{dev_splits(task)[0]}_{task.primary_metric}",
        greater_is_better=True,
        logging_steps=_LOGGING_STEPS,
        logging_nan_inf_filter=False,  # a loss that is not finite stops the run
        use_cpu=on_cpu(options),
        dataloader_pin_memory=not on_cpu(options),
        disable_tqdm=not progress,
        report_to="none",  # TensorBoard comes as a callback, with a folder of our choice
    )


def checkpoint_activations(model: PreTrainedModel) -> None:
    """Switch gradient checkpointing on, which computes no graph of jump heads again.

    Not by the Trainer's arguments, which are written as JSON and so take no function.

    Args:
        model: The classifier, with or without jump heads.
    """
    settings: dict[str, Any] = {"use_reentrant": False}
    if attached_config(model) is not None:
        settings["context_fn"] = keep_graphs
    model.activation_checkpointing_enable(settings)


def build_trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    args: TrainingArguments,
    splits: dict[str, Dataset],
    log_folder: Path | None,
) -> ClassifierTrainer:
    """Put model, data and arguments together.

    Args:
        model: The classifier.
        tokenizer: Its tokenizer.
        task: The task.
        args: The Trainer's arguments.
        splits: Encoded splits by name.
        log_folder: Folder for TensorBoard; None writes no logs.

    Returns:
        The trainer.
    """
    # Classification heads swallow num_items_in_batch: with the default the loss and its gradients
    # would be multiplied by the number of accumulated batches (transformers issue 47688).
    model.accepts_loss_kwargs = False  # type: ignore[assignment]
    trainer = ClassifierTrainer(
        model=model,
        args=args,
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=splits.get("train"),
        # While training only the first dev set is scored: the one that decides what is best.
        eval_dataset={name: splits[name] for name in dev_splits(task)[:1]},
        compute_metrics=_metrics_of(task),
        preprocess_logits_for_metrics=_first_output,
        callbacks=[LogBeforeSave(), *_tensorboard(log_folder)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _first_output(logits: Any, labels: Tensor) -> Tensor:
    """Keep the scores where a model returns hidden states too."""
    first: Tensor = logits[0] if isinstance(logits, tuple) else logits
    return first


def _metrics_of(task: Task) -> Callable[[EvalPrediction], dict[str, float]]:
    def compute(prediction: EvalPrediction) -> dict[str, float]:
        return task.compute_metrics(
            np.asarray(prediction.predictions), np.asarray(prediction.label_ids)
        )

    return compute


def _tensorboard(folder: Path | None) -> list[TrainerCallback]:
    if folder is None or find_spec("tensorboard") is None:
        return []
    from transformers.integrations.integration_utils import TensorBoardCallback

    callback = TensorBoardCallback()  # type: ignore[no-untyped-call]
    callback.logging_dir = str(folder / LOG_FOLDER)
    return [callback]
