"""Sweeps of the kind ``reading``: models that were trained densely read fewer keys, as they are.

The first variant is trained, once a seed, into ``models/`` of the sweep's folder, where it stays.
The others differ in ``attn_implementation`` alone: a name of transformers, or of ``methods``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from filelock import FileLock

from examples import methods
from examples.sweeps import training
from examples.sweeps.definition import Run, folder_name

READS = "attn_implementation"


def check(run: Run) -> None:
    """Refuse a task or a model that cannot be trained, and variants that are no way to read."""
    training.check(run)
    own = set(run.variant.options) - {READS}
    if own or run.variant.heads != "none" or run.variant.tune:
        raise ValueError(f"variants must differ in {READS} alone, got {min(own, default='heads')}")
    if run.variant == run.sweep.base and run.variant.options:
        raise ValueError("the first variant must read as it was trained")
    prepare(run)


def prepare(run: Run) -> None:
    """Make a run's way to read known to transformers."""
    name = run.variant.options.get(READS, "")
    if name.startswith(methods.PREFIX):
        methods.register(name)


def run(run: Run) -> dict[str, Any]:
    """Train a seed's model, unless it is there, and let it read; return its record."""
    folder = run.output / "models" / folder_name(run.task) / f"seed-{run.seed}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock", timeout=60):  # later: another process trains it
        trained = training.train(replace(run, variant=run.sweep.base), folder)
    prepare(run)
    measured = training.train(run, run.folder, do_train=False, model_name_or_path=folder)
    return training.make_record(run, trained | measured)
