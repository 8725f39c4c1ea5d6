"""What a run will take, as one timed step says before it begins; nothing of the run is changed."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from jat_graph.training.data import TRAIN, length_of
from jat_graph.training.memory import missing_peaks, peak_bytes, reset_peak

if TYPE_CHECKING:
    from datasets import Dataset

    from jat_graph.training.objectives.base import Encoded
    from jat_graph.training.options import TrainingOptions
    from jat_graph.training.trainer import TaskTrainer

# A pass forward and backward costs about three passes forward.
TRAINING_TO_EVALUATION = 3

_STATES = 2  # numbers that AdamW keeps for each weight
_UPDATED = 2**22  # weights of a timed update
_BRIEF = 2.0  # seconds; steps below are timed several times
_TIMES = 3
_PART = 8  # of a step's rows one is timed first

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cost:
    """What something will take."""

    seconds: float
    memory: int | None = None  # bytes at the peak; None where that is not known

    def __str__(self) -> str:
        """Say it in words."""
        told = f"about {describe_time(self.seconds)}"
        return (
            told if self.memory is None else f"{told} and {describe_bytes(self.memory)} of memory"
        )


@dataclass(frozen=True)
class Pace:
    """How fast a model is trained, and what it needs for that."""

    token: float  # seconds of a token of a batch, padding too, forward and backward
    update: float  # seconds of the optimizer's part of a step
    batch: float  # tokens of a batch of training in the mean
    memory: int | None  # bytes at the peak


class Timed(NamedTuple):
    """The seconds of a step, and whether all of it was taken, or it is guessed from fewer rows."""

    seconds: float
    whole: bool


def describe_time(seconds: float) -> str:
    """Return a time in words."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def describe_bytes(count: int) -> str:
    """Return a size in words."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{math.ceil(count / 2**20)} MiB"


def time_step(take: Callable[[int], object], rows: int, patience: float = math.inf) -> Timed:
    """Time a step of so many rows; if that would take longer than patience, guess it from fewer.

    ``take`` takes the first rows of a step. Brief steps are timed several times, as the first of
    them may compile something.
    """
    take(1)
    expected = _extrapolate(take, rows)
    if expected > patience:
        return Timed(expected, whole=False)
    times = _TIMES if expected < _BRIEF else 1
    return Timed(min(_seconds(take, rows) for _ in range(times)), whole=True)


def _extrapolate(take: Callable[[int], object], rows: int) -> float:
    """The seconds of a step by those of one row and of some: a part is the same for all sizes."""
    one, some = _seconds(take, 1), max(2, rows // _PART)
    if rows <= some:
        return one * rows
    together = _seconds(take, some)
    if together > some * one:  # than one by one: something was compiled for so many
        together = _seconds(take, some)
    return one + max(0.0, together - one) * (rows - 1) / (some - 1)


def measure_pace(trainer: TaskTrainer, patience: float = math.inf) -> Pace:
    """Time a step of a trainer that has not begun, on a batch of about the mean length."""
    model: Any = trainer.model
    device = trainer.args.device
    with _undisturbed(model, device):
        batches, tokens = _batches(trainer)
        mean = statistics.fmean(tokens)
        size, chosen = min(zip(tokens, batches, strict=True), key=lambda one: abs(one[0] - mean))
        known = not missing_peaks(device.type)
        before = reset_peak(device) if known else 0
        timed = time_step(lambda rows: _take(trainer, chosen[:rows]), len(chosen), patience)
        peak = peak_bytes(device) if known and timed.whole else None
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    own = sum(weight.nbytes for weight in weights)
    if peak is not None:  # activations grow with the batch; each gradient has a weight's size
        peak += round(max(0, peak - before - own) * (max(tokens) / size - 1)) + _STATES * own
    return Pace(timed.seconds / size, _time_update(weights, device), mean, peak)


def steps_of(options: TrainingOptions, sequences: int, processes: int = 1) -> int:
    """The optimizer steps of a run on so many sequences."""
    most: int = options.trainer.get("max_steps", -1)
    batches = math.ceil(sequences / (options.batch_size * processes))
    return most if most > 0 else options.epochs * math.ceil(batches / options.gradient_accumulation)


def cost_of(
    pace: Pace, options: TrainingOptions, steps: int, scored: Sequence[float], done: int = 0
) -> Cost:
    """What is left of a run of so many steps, whose dev sets have so many tokens."""
    left = max(0, steps - done)
    train = left * (options.gradient_accumulation * pace.batch * pace.token + pace.update)
    saves = options.epochs if options.save_steps is None else steps // options.save_steps
    on_the_way = scored[0] * saves * left / steps if options.select_best else 0.0
    score = (sum(scored) + on_the_way) * pace.token / TRAINING_TO_EVALUATION
    return Cost(train + score, pace.memory)


def foresee(
    trainer: TaskTrainer,
    options: TrainingOptions,
    splits: Mapping[str, Encoded],
    *,
    processes: int = 1,
    done: int = 0,
) -> Cost:
    """Say in a line what a run takes, or what is left of it after so many steps."""
    steps = steps_of(options, len(splits[TRAIN].features), processes)
    scored = [
        padded_tokens(split.features, options.sequences_per_evaluation) / processes
        for name, split in splits.items()
        if name != TRAIN
    ]
    cost = cost_of(measure_pace(trainer), options, steps, scored, done)
    left = max(0, steps - done)
    steps_left = "1 step" if left == 1 else f"{left} steps"
    logger.info("%s for %s and scores, by one timed step", cost, steps_left)
    return cost


def padded_tokens(rows: Dataset, batch_size: int, *, grouped: bool = False) -> int:
    """The tokens of rows in batches as they come, or of similar length, padding too."""
    lengths = [length_of(ids) for ids in rows["input_ids"]]
    if grouped:
        lengths.sort()
    starts = range(0, len(lengths), batch_size)
    return sum(_tokens(lengths[start : start + batch_size]) for start in starts)


@contextmanager
def _undisturbed(model: torch.nn.Module, device: torch.device) -> Iterator[None]:
    """Leave a model and the random state as they were; gradients are forgotten."""
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    elsewhere = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(elsewhere, device_type=device.type):
        try:
            yield
        finally:
            model.zero_grad()
            for module, training in modes:
                module.training = training
            for buffer, kept in buffers:
                buffer.copy_(kept)


def _batches(trainer: TaskTrainer) -> tuple[list[list[int]], list[int]]:
    """The batches of a first epoch, and how many tokens each has, padding too."""
    data: Any = trainer.train_dataset
    order, size = list(trainer._get_train_sampler()), trainer.args.train_batch_size
    lengths = [length_of(ids) for ids in data["input_ids"]]
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    return batches, [_tokens([lengths[row] for row in rows]) for rows in batches]


def _tokens(lengths: Sequence[int]) -> int:
    """The tokens of a batch, padding too."""
    return len(lengths) * max(lengths)


def _take(trainer: TaskTrainer, rows: Sequence[int]) -> None:
    """Go forward and backward over some rows, and wait until it is done."""
    model: Any = trainer.model
    data: Any = trainer._remove_unused_columns(trainer.train_dataset, "training")
    inputs = trainer._prepare_inputs(trainer.data_collator([data[row] for row in rows]))
    model.train()
    with trainer.accelerator.autocast():
        loss: Any = trainer.compute_loss(model, inputs)
    loss.backward()
    model.zero_grad()
    _wait(trainer.args.device)


def _time_update(weights: Sequence[torch.Tensor], device: torch.device) -> float:
    """The seconds of an optimizer's step, by AdamW on weights that are nobody's."""
    count = sum(weight.numel() for weight in weights)
    stand_in = torch.zeros(min(count, _UPDATED), device=device, requires_grad=True)
    stand_in.grad = torch.zeros_like(stand_in)
    optimizer = torch.optim.AdamW([stand_in])

    def update(_: int) -> None:
        optimizer.step()
        _wait(device)

    return time_step(update, 1).seconds * count / max(1, len(stand_in))


def _seconds(take: Callable[[int], object], rows: int) -> float:
    begin = time.perf_counter()
    take(rows)
    return time.perf_counter() - begin


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
