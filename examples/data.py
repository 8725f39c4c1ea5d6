"""The rows of the run scripts: named tasks, a person's own files, or data sets by name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset, load_dataset

from examples.tasks import RecallTask, Splits, Task, get_task
from examples.tasks.base import reading
from jat_graph.core.files import ESCAPED, check_unicode, read_text

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from examples.arguments import DataArguments

TEXTS = {"text", "text_pair", "question", "context"}  # columns that a tokenizer reads
_SUBSET_SEED = 0  # of draws: one subset for all seeds


def load_task(data: DataArguments, kind: str) -> Task | None:
    """The named task; None where there is none."""
    task = None if data.task_name is None else get_task(data.task_name)
    if task is not None and (isinstance(task, RecallTask) or task.kind != kind):
        raise ValueError(f"task_name must be a task of run_{kind}, got {task.name}, of {task.kind}")
    return task


def load_splits(data: DataArguments, task: Task | None, args: TrainingArguments) -> Splits:
    """Read the splits that a run needs, and draw as many rows of them as it wants."""
    needed = {"train": args.do_train, "test": args.do_predict}
    names = [name for name in (task.splits if task else ()) if needed.get(name, True)]
    names = ["train"] if task and data.held_out else names
    with args.main_process_first():  # which fills the cache of load_dataset
        found = task.load(data.data_dir, names) if task else _own_splits(data)
    group = task.group if task else None
    if data.held_out:
        source = task and (task.source or task.group)
        rows = found.pop("train")
        groups = range(len(rows)) if source is None else rows[source]
        held, kept = draw_groups(groups, round(data.held_out * len(rows)))
        if not held or not kept:
            raise ValueError(f"held_out must leave some of {len(rows)} rows, got {data.held_out}")
        found = {"train": rows.select(kept), "held_out": rows.select(held)}
    limits = {"train": data.max_train_samples}
    found = {
        name: draw_rows(rows, limits.get(name, data.max_eval_samples), group)
        for name, rows in found.items()
    }
    wanted = {"train": args.do_train, "validation": args.do_eval, "test": args.do_predict}
    for name, is_wanted in wanted.items():
        if is_wanted and not any(len(found[n]) for n in found if n.startswith((name, "held_out"))):
            hint = {"validation": ": name --validation_file, or --held_out 0.2"}.get(name, "")
            raise ValueError(f"there must be rows for {name}, got {', '.join(found)} only{hint}")
    return found


def _own_splits(data: DataArguments) -> Splits:
    """The rows of a person's own files, or of a data set with a name."""
    if data.dataset_name is not None:
        return dict(load_dataset(data.dataset_name, data.dataset_config_name))
    files = {"train": data.train_file, "validation": data.validation_file, "test": data.test_file}
    found: Splits = {}
    for name, file in files.items():
        if file is None:
            continue
        if not Path(file).is_file():
            raise FileNotFoundError(f"{name}_file {file} must be a file, got none")
        ending = Path(file.removesuffix(".gz")).suffix
        text, separator = read_text(file), {".csv": ",", ".tsv": "\t"}.get(ending)
        columns = text.partition("\n")[0]
        if separator and separator not in columns and any(sign in columns for sign in ";\t,|"):
            between = "commas" if separator == "," else "tabs"
            got = f"{columns.strip()!r}"
            raise ValueError(f"{file} must have {between} between its columns, got {got}")
        with reading(file, "rows in .csv, .tsv, .json, .jsonl or .txt"):
            if separator:
                rows = load_dataset("csv", data_files=file, sep=separator)
            elif ending in (".json", ".jsonl"):
                check_unicode("JSON", text, ESCAPED)  # pyarrow drops them, and moves what follows
                rows = load_dataset("json", data_files=file)
            elif ending == ".txt":
                rows = {"train": Dataset.from_dict({"text": [text]})}
            else:
                raise ValueError(f"a name that ends in {ending!r}")
            found[name] = rows["train"]
    return found


def own_columns(splits: Splits, names: dict[str | None, str]) -> Splits:
    """Own rows with only these columns, under their new names; None stands for no column."""
    wanted = {old: new for old, new in names.items() if old is not None}
    for split, rows in splits.items():
        missing = next((name for name in wanted if name not in rows.column_names), None)
        if missing is not None:
            got = ", ".join(rows.column_names)
            raise ValueError(f"the {split} data must have a column {missing!r}, got {got}")
        for column in (old for old, new in wanted.items() if new in TEXTS):
            for number, text in enumerate(rows[column]):
                where = "" if isinstance(text, str) else f", {rows[number]}"[:120]
                check_unicode(f"{column} in row {number} of the {split} data{where}", text)
    renamed = {old: new for old, new in wanted.items() if old != new}
    return {
        name: rows.select_columns([*wanted]).rename_columns(renamed)
        for name, rows in splits.items()
    }


def draw_rows(rows: Dataset, limit: int | None, group: str | None = None) -> Dataset:
    """About ``limit`` rows, the same in every run; rows of one group stay together."""
    if limit is None or limit >= len(rows):
        return rows
    if group is None:
        return rows.shuffle(seed=_SUBSET_SEED).select(range(limit))
    return rows.select(draw_groups(rows[group], limit)[0])


def draw_groups(groups: Iterable[Any], limit: int) -> tuple[list[int], list[int]]:
    """Rows of whole groups, drawn until there are enough, and the rows left; always the same."""
    members: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    found = list(members.values())
    drawn: set[int] = set()
    for number in np.random.default_rng(_SUBSET_SEED).permutation(len(found)):
        if len(drawn) >= limit:
            break
        drawn.update(found[number])
    rows = range(sum(map(len, found)))
    return [row for row in rows if row in drawn], [row for row in rows if row not in drawn]
