"""Sweeps of the kind ``scratch``: a small model whose weights are all drawn learns a task.

Words and expressions are read by a BERT, notes and characters by a Llama, a decoder, of
``study.layers`` layers, 64 features and four heads. The tokenizer knows what the training data
have: words that are there ``study.seen`` times, or characters. Variants differ in their heads
alone: within a seed they begin with the same weights and see the same batches.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transformers import PreTrainedConfig

from examples.data import draw_rows
from examples.sweeps import training
from examples.sweeps.definition import Run
from examples.sweeps.heads import build_heads
from examples.sweeps.small_models import (
    HEADS,
    character_tokenizer,
    decoder_config,
    encoder_config,
    word_tokenizer,
    write_model,
)
from examples.tasks import Task, get_task


def check(run: Run) -> None:
    """Refuse a model, sizes, tasks and variants that do not fit."""
    run.refuse_model()
    for name, value in run.sweep.study.items():
        if name not in ("layers", "seen") or not isinstance(value, int) or value < 1:
            raise ValueError(f"study must have layers and seen of at least 1, got {name}={value}")
    task, variant = get_task(run.task), run.variant
    if task.kind not in ("classification", "tagging", "language_modelling"):
        raise ValueError(f"tasks must be of classes, tags or language, got {task.name!r}")
    if variant.options or variant.tune or variant.density:
        raise ValueError("variants must differ in their heads alone")
    build_heads(variant, layers=run.sweep.study.get("layers", 2), heads=HEADS)


def run(run: Run) -> dict[str, Any]:
    """Make a model, train and score it; return its record, with the answers of what is shown."""
    layers, task = run.sweep.study.get("layers", 2), get_task(run.task)
    start = run.folder.with_name(f"{run.folder.name}-start")
    if not (start / "config.json").exists():
        make_start(run, task, start)
    heads = build_heads(run.variant, layers=layers, heads=HEADS)
    own = replace(run, model=str(start))
    record = training.make_record(own, training.train(own, run.folder, heads, from_scratch=True))
    shown = "test" if "test" in record["scores"] else next(iter(record["scores"]))
    answers = {split: both for split, both in record["answers"].items() if split == shown}
    return {**record, "answers": answers}


def make_start(run: Run, task: Task, folder: Any) -> None:
    """Write what a run's model is made from: a configuration, and a tokenizer if it needs one."""
    rows = task.load(run.data_dir, ["train"])["train"]
    rows = draw_rows(rows, run.options.get("max_train_samples"), task.group)
    layers, seen = run.sweep.study.get("layers", 2), run.sweep.study.get("seen", 2)
    config: PreTrainedConfig = encoder_config(layers)
    if task.kind == "language_modelling":
        config = decoder_config(layers)
        known = task.vocabulary_size is not None
        tokenizer = None if known else character_tokenizer(rows["text"])
    elif task.kind == "tagging":
        tokenizer = word_tokenizer(map(" ".join, rows["tokens"]), seen)
    else:
        columns = [name for name in ("text", "text_pair") if name in rows.column_names]
        tokenizer = word_tokenizer((text for name in columns for text in rows[name]), seen)
    write_model(folder, config, tokenizer)
