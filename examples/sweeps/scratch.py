"""Sweeps of the kind ``scratch``: a small model whose weights are all drawn learns a task.

Words and expressions are read by a BERT, notes and characters by a Llama, of ``study.layers``
layers. Tokens are the words that the training data have ``study.seen`` times, or the characters.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from examples.data import draw_rows
from examples.sweeps import training
from examples.sweeps.definition import Run
from examples.sweeps.heads import build_heads
from examples.sweeps.small_models import CHARACTERS, HEADS, counted_tokenizer, write_model
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
        make_start(run, task, layers, start)
    heads = build_heads(run.variant, layers=layers, heads=HEADS)
    own = replace(run, model=str(start))
    record = training.make_record(own, training.train(own, run.folder, heads, from_scratch=True))
    shown = "test" if "test" in record["scores"] else next(iter(record["scores"]))
    answers = {split: both for split, both in record["answers"].items() if split == shown}
    return {**record, "answers": answers}


def make_start(run: Run, task: Task, layers: int, folder: Path) -> None:
    """Write what a run's model is made from: a configuration, and a tokenizer if it needs one."""
    rows = task.load(run.data_dir, ["train"])["train"]
    rows = draw_rows(rows, run.options.get("max_train_samples"), task.group)
    decoder, tokenizer = task.kind == "language_modelling", None
    if task.kind == "tagging":
        texts = [" ".join(words) for words in rows["tokens"]]
    else:
        columns = [name for name in ("text", "text_pair") if name in rows.column_names]
        texts = [text for name in columns for text in rows[name]]
    if not decoder:
        tokenizer = counted_tokenizer(texts, seen=run.sweep.study.get("seen", 2))
    elif task.vocabulary_size is None:
        tokenizer = counted_tokenizer(texts, CHARACTERS)
    write_model(folder, layers, tokenizer, decoder)
