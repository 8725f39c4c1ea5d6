"""Sweeps of the kinds ``partners`` and ``far-recall``: small models from scratch recall values.

A task names the number of layers and the sequences, as ``"1 layer, 5 pairs"`` or ``"2 layers, 48
filler"``, and the number of features if it is not 64, as ``"1 layer, 5 pairs, 128 features"``. The
table ``[study]`` has the fields of :class:`examples.sweeps.small_reader.Training`.
"""

from __future__ import annotations

from typing import Any

import torch

from examples.sweeps.definition import Run, validate
from examples.sweeps.heads import build_heads
from examples.sweeps.small_reader import (
    CHANNELS,
    HEADS,
    Heads,
    SmallReader,
    Training,
    learning_curve,
)
from examples.tasks.recall import FarRecallTask, PartnersTask, RecallTask


def check(run: Run) -> None:
    """Refuse a model, options, and what a small model's layers cannot have."""
    run.refuse_model()
    variant = run.variant
    if run.sweep.options or variant.options or variant.tune or variant.density:
        raise ValueError(f"variants of {run.sweep.name} must differ in their heads alone")
    task, _, channels, heads, _ = read_setting(run)
    SmallReader(task, 1, heads, channels)


def read_setting(run: Run) -> tuple[RecallTask, int, int, Heads, Training]:
    """Return what a run trains: on which sequences, how deep and wide, with which heads, how."""
    unit = {"partners": "pairs", "far-recall": "filler"}[run.sweep.kind]
    pattern = rf"([1-9]\d?) layers?, ([1-9]\d*) {unit}(?:, ([1-9]\d*) features)?"
    layers, size, channels = run.read_task(pattern, f"'1 layer, 5 {unit}'").groups(CHANNELS)
    task = PartnersTask(pairs=int(size)) if unit == "pairs" else FarRecallTask(filler=int(size))
    variant = run.variant
    heads: Heads
    if variant.heads in ("triplet", "gfsa", "nexus") and not variant.settings:
        heads = variant.heads
    else:
        heads = next(iter(build_heads(variant, layers=1, heads=HEADS)), None)
    training = validate(Training, run.sweep.study, "[study]")
    return task, int(layers), int(channels), heads, training


def run(run: Run) -> dict[str, Any]:
    """Train and test a model; return its record, with the scores of each test on the way."""
    task, layers, channels, heads, training = read_setting(run)
    device = (torch.accelerator.current_accelerator() or torch.device("cpu")).type
    sizes: dict[str, Any] = {"layers": layers, "channels": channels, "seed": run.seed}
    curve = dict(learning_curve(task, heads, training=training, device=device, **sizes))
    steps = {f"step {step}": scores for step, scores in curve.items()}
    return {"scores": {"test": curve[training.steps]} | steps, "device": device}
