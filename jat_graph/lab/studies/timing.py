"""A step of a cell's training: to say what a run takes, and to warm up before one is timed."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from jat_graph.tasks import LanguageModelTask, get_task
from jat_graph.training.data import TRAIN, drawn_rows, group_of
from jat_graph.training.estimate import Cost, cost_of, measure_pace, padded_tokens, steps_of
from jat_graph.training.heads import Heads, join_kinds, kinds_of
from jat_graph.training.objectives import objective_for
from jat_graph.training.objectives.base import Encoded, draw
from jat_graph.training.options import TrainingOptions
from jat_graph.training.pretrained import load_config, quiet
from jat_graph.training.processes import Processes, own_environment
from jat_graph.training.runner import assemble

if TYPE_CHECKING:
    from datasets import Dataset

    from jat_graph.training.trainer import TaskTrainer

# An optimizer's step takes about as long as going forward and backward over so many tokens: both
# grow with the weights. Measured with all-MiniLM-L6-v2 on a CPU core, 140 to 290.
STEP = 200

_FEW = 256  # rows of a split, which say how long all are

# What the rows of a run depend on, and what else their tokens do.
_OF_ROWS = ("task", "data_dir", "max_train_samples", "max_eval_samples", "held_out")
_OF_TOKENS = (*_OF_ROWS, "model", "max_length", "stride")


class Job(Protocol):
    """What is done in a cell, whose time is asked for."""

    @property
    def size(self) -> float:
        """How much there is to do, compared with other jobs."""

    def time(self, patience: float) -> Cost:
        """Say by timed steps what it takes; long ones are guessed from one row."""


class Sample(NamedTuple):
    """A few rows of a split."""

    encoded: Encoded
    share: float  # how many sequences all rows make for each of theirs


@dataclass(frozen=True)
class TrainingJob:
    """A run that is trained and scored."""

    options: TrainingOptions
    heads: Heads | None

    @property
    def size(self) -> float:
        """The tokens that are trained on, with their padding, and those that steps stand for."""
        (rows, share), options = self._samples[TRAIN], self.options
        grouped = options.group_by_length
        tokens = padded_tokens(rows.features, options.batch_size, grouped=grouped)
        steps = steps_of(options, round(len(rows.features) * share))
        return (options.epochs * share * tokens + STEP * steps) * self._depth

    @property
    def _depth(self) -> float:
        """How deep the model is made, compared with what it is."""
        depth = self.options.depth
        return 1.0 if depth is None else depth / load_config(self.options.model).num_hidden_layers

    def time(self, patience: float) -> Cost:
        """Time a step on a few rows of the task."""
        samples, options = self._samples, self.options
        with _trainer(options, self.heads, samples) as trainer:
            pace = measure_pace(trainer, patience)
        rows, share = samples[TRAIN]
        size = options.sequences_per_evaluation
        scored = [
            split.share * padded_tokens(split.encoded.features, size)
            for name, split in samples.items()
            if name != TRAIN
        ]
        return cost_of(pace, options, steps_of(options, round(len(rows.features) * share)), scored)

    @property
    def _samples(self) -> Mapping[str, Sample]:
        return read_samples(_only(self.options, _OF_TOKENS))


def warm_up(options: TrainingOptions, heads: Heads | None) -> None:
    """Take training steps that are not timed, so that nothing is compiled within one that is."""
    TrainingJob(options, heads).time(math.inf)


def _only(options: TrainingOptions, names: tuple[str, ...]) -> TrainingOptions:
    """Options that are alike where some of their fields are."""
    any_run = {"model": "any", "output_dir": "any"}
    return TrainingOptions(**any_run | {name: getattr(options, name) for name in names})


@lru_cache(maxsize=32)
def read_samples(options: TrainingOptions) -> Mapping[str, Sample]:
    """A few encoded rows of each split that a run reads; arms of a grid share them."""
    task = get_task(options.task)
    objective, blocks = objective_for(task, options), isinstance(task, LanguageModelTask)
    limits = {TRAIN: options.max_train_samples if blocks else None}
    other = options.max_eval_samples if blocks else None  # of language models one of blocks
    return {
        name: _sample(objective.encode(few, None), count, limits.get(name, other))
        for name, (few, count) in _read_rows(_only(options, _OF_ROWS)).items()
    }


def forget_samples() -> None:
    """Let go of data that were read."""
    read_samples.cache_clear()
    _read_rows.cache_clear()


@lru_cache(maxsize=32)
def _read_rows(options: TrainingOptions) -> Mapping[str, tuple[Dataset, int]]:
    """A few rows of each split that a run reads, and how many it reads; models share them."""
    group = group_of(get_task(options.task))
    rows = {name: drawn for name, (drawn, _) in drawn_rows(options).items()}
    return {name: (draw(drawn, _FEW, group), len(drawn)) for name, drawn in rows.items()}


def _sample(encoded: Encoded, rows: int, most: int | None) -> Sample:
    found = len(encoded.features)
    sequences = found * rows / len(encoded.rows)
    return Sample(encoded, (sequences if most is None else min(most, sequences)) / found)


@contextmanager
def _trainer(
    options: TrainingOptions, heads: Heads | None, samples: Mapping[str, Sample]
) -> Iterator[TaskTrainer]:
    """Give the Trainer of a run on a few rows; nothing is kept."""
    splits = {name: sample.encoded for name, sample in samples.items()}
    objective = objective_for(get_task(options.task), options)
    one = _with_one_threshold(heads)
    with tempfile.TemporaryDirectory() as scratch, quiet(), own_environment():
        yield assemble(objective, one, Processes(), Path(scratch), splits, progress=False)


def _with_one_threshold(heads: Heads | None) -> Heads | None:
    """Return settings that need no table of measured thresholds."""
    jump, triplet = kinds_of(heads)
    if jump is not None and isinstance(jump.graph.threshold, tuple):
        jump = jump.replace(threshold=type(jump.graph)().threshold)
    return join_kinds(jump, triplet)
