"""GLUE: nine tasks of understanding sentences, from the original files or from the Hub.

Reference:
    Wang et al., *GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
    Understanding*, ICLR 2019.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd
from datasets import ClassLabel, Dataset, load_dataset

from examples.tasks.base import Splits, Task, find_file, read_text
from examples.tasks.metrics import score_classes, score_numbers

ENTAILMENT = ("entailment", "not_entailment")
_FILES = {
    "train": "train.tsv",
    "validation": "dev.tsv",
    "validation_matched": "dev_matched.tsv",
    "validation_mismatched": "dev_mismatched.tsv",
}


def read_table(
    path: Path,
    texts: Sequence[str],
    label: str,
    codes: Sequence[str] | None,
    columns: Sequence[str] | None = None,
    skip_broken: bool = False,
) -> Dataset:
    """Read a file of tab-separated columns; codes are those of classes 0, 1 …, None: numbers.

    Nothing is unquoted: a quotation mark in these files is part of the text.
    """
    try:
        frame = pd.read_csv(
            io.StringIO(read_text(path)),
            sep="\t",
            quoting=csv.QUOTE_NONE,
            header=0 if columns is None else None,
            names=columns,
            dtype=str,
            keep_default_na=False,
            na_values=[],
            lineterminator="\n",
            on_bad_lines="skip" if skip_broken else "error",
        )
        frame = frame.rename(columns=str.strip)[[*texts, label]]
    except (pd.errors.EmptyDataError, pd.errors.ParserError, KeyError) as error:
        raise ValueError(
            f"{path} must have the columns {', '.join((*texts, label))}: {error}"
        ) from None
    if skip_broken:
        frame = frame[frame[label].isin(codes or ())]
    frame = frame.apply(lambda column: column.str.removesuffix("\r"))
    wrong = frame[frame[label].isna() | ~frame[label].isin(codes or frame[label].unique())]
    if len(wrong) or not len(frame):
        got = f"{wrong[label].iloc[0]!r} in row {wrong.index[0]}" if len(wrong) else "no rows"
        raise ValueError(
            f"{path} must have labels of {', '.join(codes or ('numbers',))}, got {got}"
        )
    made = {name: [*frame[own]] for name, own in zip(("text", "text_pair"), texts, strict=False)}
    if codes is None:
        return Dataset.from_dict({**made, "label": [*frame[label].astype(float)]})
    return Dataset.from_dict({**made, "label": [*map(codes.index, frame[label])]})


def read_glue(
    data_dir: Path | None,
    names: Sequence[str],
    *,
    task: str,
    folder: str,
    texts: Sequence[str],
    label: str,
    labels: Sequence[str] | None,
    codes: Sequence[str] | None = ("0", "1"),
    hub_texts: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    skip_broken: bool = False,
) -> Splits:
    """Read splits of a task, with the labels of the Hub."""
    if data_dir is None:
        found = load_dataset("nyu-mll/glue", task, split=[*names])
        renamed = dict(zip(hub_texts or texts, ("text", "text_pair"), strict=False))
        return {
            name: rows.rename_columns(renamed).remove_columns("idx")
            for name, rows in zip(names, found, strict=True)
        }
    paths = {name: find_file(data_dir, f"glue/{folder}", _FILES[name]) for name in names}
    made = {
        name: read_table(path, texts, label, codes, columns, skip_broken)
        for name, path in paths.items()
    }
    if labels is None:
        return made
    named = ClassLabel(names=[*labels])
    return {name: rows.cast_column("label", named) for name, rows in made.items()}


def _task(name: str, folder: str, metrics: tuple[str, ...], *splits: str, **layout: object) -> Task:
    score = score_numbers if layout["labels"] is None else partial(score_classes, names=metrics)
    read = partial(read_glue, task=name, folder=folder, **layout)
    return Task(
        name, "classification", read, score, metrics, ("train", *(splits or ("validation",)))
    )


_PAIR = ("sentence1", "sentence2")
_THREE = ("entailment", "neutral", "contradiction")

GLUE = (
    _task(
        "cola",
        "CoLA",
        ("matthews",),
        texts=("sentence",),
        label="label",
        labels=("unacceptable", "acceptable"),
        columns=("source", "label", "mark", "sentence"),
    ),
    _task(
        "sst2",
        "SST-2",
        ("accuracy",),
        texts=("sentence",),
        label="label",
        labels=("negative", "positive"),
    ),
    _task(
        "mrpc",
        "MRPC",
        ("accuracy", "f1"),
        texts=("#1 String", "#2 String"),
        hub_texts=_PAIR,
        label="Quality",
        labels=("not_equivalent", "equivalent"),
    ),
    _task(
        "stsb",
        "STS-B",
        ("pearson", "spearman"),
        texts=_PAIR,
        label="score",
        labels=None,
        codes=None,
    ),
    # The published train.tsv has lines cut in two inside a question, which every reader leaves out:
    # https://github.com/nyu-mll/GLUE-baselines/issues/5
    _task(
        "qqp",
        "QQP",
        ("accuracy", "f1"),
        texts=("question1", "question2"),
        label="is_duplicate",
        labels=("not_duplicate", "duplicate"),
        skip_broken=True,
    ),
    _task(
        "mnli",
        "MNLI",
        ("accuracy",),
        "validation_matched",
        "validation_mismatched",
        texts=_PAIR,
        hub_texts=("premise", "hypothesis"),
        label="gold_label",
        labels=_THREE,
        codes=_THREE,
    ),
    _task(
        "qnli",
        "QNLI",
        ("accuracy",),
        texts=("question", "sentence"),
        label="label",
        labels=ENTAILMENT,
        codes=ENTAILMENT,
    ),
    _task(
        "rte", "RTE", ("accuracy",), texts=_PAIR, label="label", labels=ENTAILMENT, codes=ENTAILMENT
    ),
    _task(
        "wnli",
        "WNLI",
        ("accuracy",),
        texts=_PAIR,
        label="label",
        labels=("not_entailment", "entailment"),
    ),
)
