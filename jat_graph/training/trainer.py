"""Transformers' Trainer, made to resume exactly and to stop where it cannot go on."""

from __future__ import annotations

import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import SequentialSampler
from transformers import (
    EvalPrediction,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import ExportableState
from transformers.trainer_pt_utils import LengthGroupedSampler

from jat_graph.hf import attached_config, keep_graphs
from jat_graph.training.data import TRAIN, dev_splits, length_of
from jat_graph.training.objectives.base import Answers, Encoded, Objective
from jat_graph.training.processes import Processes
from jat_graph.training.results import Metrics, finite
from jat_graph.training.storage import LOG_FOLDER, one_line_errors
from jat_graph.training.strengths import set_apart, strength_parameters

if TYPE_CHECKING:
    from transformers import PreTrainedModel


logger = logging.getLogger(__name__)


class SeededLengthSampler(LengthGroupedSampler):
    """Batches of similar length, in an order that depends on seed and epoch only.

    The Trainer's own sampler draws from the global generator, which dropout moves on: after a
    resume, and between two models, its order would differ. A batch here is that of a whole step.
    """

    def __init__(self, batch_size: int, lengths: list[int], seed: int) -> None:
        super().__init__(batch_size, lengths=lengths)
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch; the data loader calls this."""
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
        """Log if a checkpoint follows."""
        control.should_log = control.should_log or control.should_save

    on_epoch_end = on_step_end


class TrainingTime(TrainerCallback, ExportableState):
    """Wall-clock time of a training; each checkpoint keeps it, so that a resumed run adds to it."""

    def __init__(self) -> None:
        self._earlier = 0.0
        self._began: float | None = None

    @property
    def seconds(self) -> float:
        """The time until now, evaluations included; a resumed run begins with its checkpoint's."""
        return self._earlier + (0 if self._began is None else time.perf_counter() - self._began)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"args": {}, "attributes": {"seconds": self.seconds}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin with the time that the checkpoint has, if there is one."""
        kept: Any = state.stateful_callbacks
        # A checkpoint from before times were kept has none; the Trainer saves to what is there.
        own = kept.setdefault(type(self).__name__, self.state())
        self._earlier = own["attributes"]["seconds"]
        self._began = time.perf_counter()


class ProgressLines(TrainerCallback):
    """Where no bar is shown, say in a line of the log how far a training is."""

    def __init__(self, clock: TrainingTime) -> None:
        self._clock = clock

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Say step, loss, learning rate and the time that is left."""
        logs = kwargs.get("logs") or {}
        if not args.disable_tqdm or not state.is_world_process_zero or "loss" not in logs:
            return
        left = self._clock.seconds * (state.max_steps / max(1, state.global_step) - 1)
        logger.info(
            "step %d of %d: loss %.4g, rate %.3g, %s left",
            *(state.global_step, state.max_steps, logs["loss"], logs.get("learning_rate", 0.0)),
            timedelta(seconds=round(left)),
        )


def tensorboard(folder: Path | None) -> list[TrainerCallback]:
    """What writes logs for TensorBoard, if it is installed and there is a folder."""
    if folder is None or find_spec("tensorboard") is None:
        return []
    from transformers.integrations.integration_utils import TensorBoardCallback

    callback = TensorBoardCallback()  # type: ignore[no-untyped-call]
    callback.logging_dir = str(folder / LOG_FOLDER)
    return [callback]


class TaskTrainer(Trainer):
    """The Trainer of any task here, which knows how long it has trained."""

    clock: TrainingTime
    strength_lr: float | None = None

    def training_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Run one forward and backward pass."""
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        # The mean over processes: they stop together, or one would wait for the others forever.
        mean = self.accelerator.reduce(loss.detach(), reduction="mean").item()
        if not math.isfinite(mean):
            raise FloatingPointError(
                f"the training loss became {mean} at step {self.state.global_step + 1}: "
                f"lower learning_rate (now {self.args.learning_rate:g}) or use another precision"
            )
        return loss

    def create_optimizer(self, model: Any = None) -> Optimizer:
        """Make the optimizer; learned strengths have a learning rate of their own."""
        is_new = self.optimizer is None
        optimized: Any = self.model if model is None else model
        optimizer = super().create_optimizer(model)
        strengths = strength_parameters(optimized) if is_new else []
        if strengths:
            set_apart(optimizer, strengths, self.args.learning_rate, self.strength_lr)
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Make the schedule."""
        try:
            return super().create_scheduler(num_training_steps, optimizer)
        except TypeError as error:  # of a schedule that has no such setting
            raise ValueError(f"trainer: lr_scheduler_kwargs: {error}") from None

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        lengths = [length_of(ids) for ids in dataset["input_ids"]]
        batches = self.args.gradient_accumulation_steps * self.args.world_size
        return SeededLengthSampler(self.args.train_batch_size * batches, lengths, self.args.seed)

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        return SequentialSampler(eval_dataset)  # answers stand beside the rows, by length or not

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        folder = Path(str(self.args.output_dir), f"checkpoint-{self.state.global_step}")
        try:
            with one_line_errors(folder):
                super()._save_checkpoint(model, trial)
        except OSError:
            if self.args.should_save:
                shutil.rmtree(folder, ignore_errors=True)
            raise


def checkpoint_activations(model: PreTrainedModel) -> None:
    """Switch gradient checkpointing on, which computes no graph of jump heads again.

    Not by the Trainer's arguments, which are written as JSON and so take no function.
    """
    settings: dict[str, Any] = {"use_reentrant": False}
    if attached_config(model) is not None:
        settings["context_fn"] = keep_graphs
    model.activation_checkpointing_enable(settings)


def build_trainer(
    model: PreTrainedModel,
    objective: Objective[Any],
    processes: Processes,
    args: TrainingArguments,
    splits: dict[str, Encoded],
    log_folder: Path | None,
) -> TaskTrainer:
    """The Trainer of a run; without a folder it writes no logs."""
    classes = objective.loss is None and objective.labels == ("labels",)
    if args.label_smoothing_factor and not (classes and model.config.problem_type != "regression"):
        raise ValueError(
            "trainer must leave out label_smoothing_factor, which means nothing for the loss of "
            f"task {objective.task.name}"
        )
    if not objective.counts_items:
        model.accepts_loss_kwargs = False  # type: ignore[assignment]
    # While training only the first dev set is scored: the one that decides what is best.
    name = dev_splits(objective.task, objective.options)[0]
    clock = TrainingTime()
    try:
        trainer = TaskTrainer(
            model=model,
            args=args,
            processing_class=objective.saved_tokenizer,
            data_collator=objective.collate,
            train_dataset=splits[TRAIN].features if TRAIN in splits else None,
            eval_dataset={name: splits[name].features},
            compute_loss_func=objective.loss,
            compute_metrics=_metrics_on(splits[name], objective, processes),
            preprocess_logits_for_metrics=objective.reduce,
            callbacks=[LogBeforeSave(), clock, ProgressLines(clock), *tensorboard(log_folder)],
        )
    except RuntimeError as error:
        if "to be installed" not in str(error):
            raise
        raise ImportError(f"trainer: report_to: {error}") from None
    trainer.clock, trainer.strength_lr = clock, objective.options.strength_lr
    trainer.remove_callback(PrinterCallback)
    return trainer


def score(
    trainer: TaskTrainer,
    objective: Objective[Any],
    processes: Processes,
    splits: dict[str, Encoded],
) -> tuple[Metrics, dict[str, Answers]]:
    """Scores and answers of the trainer's model on every dev set of its run."""
    metrics: Metrics = {}
    answers: dict[str, Answers] = {}
    for name in dev_splits(objective.task, objective.options):
        trainer.compute_metrics = None  # those of the first dev set
        output = trainer.predict(splits[name].features)
        scores, said = processes.agree(
            partial(objective.judge, output.predictions, output.label_ids, splits[name])
        )
        metrics[name] = finite(scores)
        if said is not None:
            answers[name] = said
            remark_on(name, said)
    return metrics, answers


def remark_on(split: str, answers: Answers) -> None:
    """Warn of a model that gives one answer to examples of which it should tell some apart."""
    said, right = ({json.dumps(one) for one in side} for side in (answers.said, answers.right))
    if len(said) == 1 and len(right) > 1:
        logger.warning(
            "%s: the model answers %s to all %d examples: it has learned nothing that tells them "
            "apart; train longer, or with another learning rate",
            split,
            *said,
            len(answers.said),
        )


def _metrics_on(
    split: Encoded, objective: Objective[Any], processes: Processes
) -> Callable[[EvalPrediction], dict[str, float]]:
    def compute(prediction: EvalPrediction) -> dict[str, float]:
        outputs = prediction.predictions, prediction.label_ids
        return processes.agree(lambda: objective.judge(*outputs, split)[0])

    return compute
