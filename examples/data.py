"""The rows of the run scripts: named tasks, a person's own files, or data sets by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset, Value, load_dataset

from examples.own_rows import own_rows, read_rows
from examples.tasks import RecallTask, Splits, Task, get_task
from jat_graph.core.files import check_unicode

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from examples.arguments import DataArguments

_SUBSET_SEED = 0  # of draws: one subset for all seeds


def load_task(data: DataArguments, kind: str) -> Task | None:
    """The named task; None where there is none."""
    task = None if data.task_name is None else get_task(data.task_name)
    if task is not None and (isinstance(task, RecallTask) or task.kind != kind):
        raise ValueError(f"task_name must be a task of run_{kind}, got {task.name}, of {task.kind}")
    return task


def load_splits(
    data: DataArguments,
    task: Task | None,
    args: TrainingArguments,
    columns: Mapping[str | None, str],
) -> Splits:
    """Read the splits that a run needs, and draw as many rows of them as it wants.

    Own rows have the ``columns`` alone, under their new names; None stands for no column.
    """
    needed = {"train": args.do_train, "test": args.do_predict}  # validation's are cheap
    names = [name for name in (task.splits if task else ()) if needed.get(name, True)]
    names = ["train"] if task and data.held_out else names
    with args.main_process_first():  # which fills the cache of load_dataset
        found = task.load(data.data_dir, names) if task else _own_splits(data, columns)
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


def _own_splits(data: DataArguments, columns: Mapping[str | None, str]) -> Splits:
    """The rows of own files, or of a data set with a name, with the columns of a task."""
    if data.dataset_name is not None:
        named = load_dataset(data.dataset_name, data.dataset_config_name)
        return {split: _named_columns(rows, split, columns) for split, rows in named.items()}
    files = {"train": data.train_file, "validation": data.validation_file, "test": data.test_file}
    return {
        split: own_rows(read_rows(file, columns), columns, f"the {split} data", data.drop_bad_rows)
        for split, file in files.items()
        if file is not None
    }


def _named_columns(rows: Dataset, split: str, columns: Mapping[str | None, str]) -> Dataset:
    """Rows of a data set with a name, of the types that it declares, under their new names."""
    names = {old: new for old, new in columns.items() if old is not None}
    missing = next((name for name in names if name not in rows.column_names), None)
    if missing is not None:
        got = ", ".join(rows.column_names)
        raise ValueError(f"the {split} data must have a column {missing!r}, got {got}")
    made = rows.select_columns([*names])
    made = made.rename_columns({old: new for old, new in names.items() if old != new})
    for name in ("text", "text_pair", "question", "context"):
        for number, text in enumerate(made[name] if name in made.column_names else ()):
            check_unicode(f"{name} in row {number} of the {split} data", text)
    for name in ("tokens", "tags"):
        if isinstance(made.features.get(name), Value):  # words, separated by blanks
            made = made.map(partial(_split_words, name=name))
    if "tags" in made.column_names:
        for number, pair in enumerate(zip(made["tokens"], made["tags"], strict=True)):
            if len(pair[0]) != len(pair[1]):
                got = f"{len(pair[0])} and {len(pair[1])}"
                where = f"row {number} of the {split} data"
                raise ValueError(f"{where} must have a tag a word, got {got}")
    return made


def _split_words(row: dict[str, Any], name: str) -> dict[str, list[str]]:
    return {name: row[name].split()}


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
