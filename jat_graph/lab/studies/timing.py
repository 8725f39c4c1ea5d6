"""A few training steps of a cell: to say what a run takes, and to warm up before one is timed."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jat_graph.config import JatConfig
from jat_graph.tasks import get_task
from jat_graph.training.data import TRAIN, drawn_rows, load_splits
from jat_graph.training.heads import Heads, attach_heads, join_kinds, kinds_of
from jat_graph.training.loading import load_for_training
from jat_graph.training.objectives import objective_for
from jat_graph.training.options import TrainingOptions
from jat_graph.training.pretrained import quiet

if TYPE_CHECKING:
    import torch

    from jat_graph.training.objectives.base import Encoded, Objective

_STEPS = 3  # timed, after one that is not

# A pass forward and backward costs about three passes forward.
_TRAINING_TO_EVALUATION = 3


def time_run(options: TrainingOptions, heads: Heads | None) -> float:
    """Time a few training steps of a run, and say what all of it would take."""
    with _first_rows(options, _STEPS + 1) as (objective, encoded):
        features = list(encoded.features)
        times = _time_steps(objective, features, heads, _STEPS + 1)
    counts = {name: len(used) for name, (used, _) in drawn_rows(options).items()}
    rows, dev_rows = counts.pop(TRAIN), sum(counts.values())
    # long contexts are cut into windows
    ratio = len(features) / max(1, min((_STEPS + 1) * options.batch_size, rows))
    steps = options.epochs * math.ceil(rows * ratio / options.batch_size)
    passes = options.epochs + 1 if options.select_best else 1
    dev_steps = passes * dev_rows * ratio / options.batch_size
    return statistics.median(times[1:]) * (steps + dev_steps / _TRAINING_TO_EVALUATION)


def warm_up(options: TrainingOptions, heads: Heads | None) -> None:
    """Take one training step that is not timed, so that nothing is compiled within one that is."""
    with _first_rows(options, 1) as (objective, encoded):
        _time_steps(objective, list(encoded.features), heads, 1)


@contextmanager
def _first_rows(options: TrainingOptions, batches: int) -> Iterator[tuple[Objective[Any], Encoded]]:
    """Give the encoded rows of a few batches; nothing is kept, and no text that is cut is told."""
    data, silent = logging.getLogger(load_splits.__module__), logging.Filter("nothing")
    data.addFilter(silent)  # the run itself will tell, of all texts
    try:
        with quiet():
            wanted = batches * options.batch_size
            most = min(wanted, options.max_train_samples or wanted)
            sampled = replace(options, max_train_samples=most, max_eval_samples=1)
            objective = objective_for(get_task(options.task), sampled)
            yield objective, load_splits(objective, (TRAIN,))[TRAIN]
    finally:
        data.removeFilter(silent)


def _time_steps(
    objective: Objective[Any], rows: list[dict[str, Any]], heads: Heads | None, count: int
) -> list[float]:
    """Take training steps, and return the seconds of each."""
    import torch

    from jat_graph.training.arguments import on_cpu

    options = objective.options
    device = None if on_cpu(options) else torch.accelerator.current_accelerator()
    device = device or torch.device("cpu")
    model: torch.nn.Module = load_for_training(objective)
    attach_heads(model, _with_one_threshold(heads), objective.saved_tokenizer)
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    times = []
    for step in range(count):
        start = step * options.batch_size % len(rows)
        batch = objective.collate(rows[start : start + options.batch_size])
        begin = time.perf_counter()
        _step(model, batch, optimizer, device, options.mixed_precision)
        times.append(time.perf_counter() - begin)
    return times


def _step(
    model: Any,
    batch: dict[str, torch.Tensor],
    optimizer: torch.optim.Optimizer,
    device: torch.device,
    precision: str,
) -> None:
    """Take one training step, and wait until it is done."""
    import torch

    kind = torch.float16 if precision == "fp16" else torch.bfloat16
    inputs = {name: tensor.to(device) for name, tensor in batch.items()}
    with torch.autocast(device.type, kind, enabled=precision != "no"):
        loss = model(**inputs).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    loss.item()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _with_one_threshold(heads: Heads | None) -> Heads | None:
    """Return settings that need no table of measured thresholds."""
    jump, triplet = kinds_of(heads)
    if jump is not None and isinstance(jump.threshold, tuple):
        jump = replace(jump, threshold=JatConfig(graph=jump.graph).threshold)
    return join_kinds(jump, triplet)
