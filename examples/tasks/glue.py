"""GLUE: nine tasks of understanding sentences, from the original files.

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
from datasets import ClassLabel, Dataset

from examples.tasks.base import Splits, Task, find_file, read_text
from examples.tasks.metrics import score_classes, score_numbers

ENTAILMENT = "entailment not_entailment"
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
    folder: str,
    texts: Sequence[str],
    label: str,
    labels: Sequence[str] | None,
    named: bool = False,
    columns: Sequence[str] | None = None,
    skip_broken: bool = False,
) -> Splits:
    """Read splits of a task; ``named`` files have the names of labels, others their numbers."""
    codes = labels if named or labels is None else [*map(str, range(len(labels)))]
    paths = {name: find_file(data_dir, f"glue/{folder}", _FILES[name]) for name in names}
    made = {
        name: read_table(path, texts, label, codes, columns, skip_broken)
        for name, path in paths.items()
    }
    if labels is None:
        return made
    classes = ClassLabel(names=[*labels])
    return {name: rows.cast_column("label", classes) for name, rows in made.items()}


def _task(
    folder: str,
    metrics: tuple[str, ...],
    texts: Sequence[str],
    label: str,
    labels: str,
    splits: tuple[str, ...] = ("validation",),
    **layout: object,
) -> Task:
    classes = tuple(labels.split()) or None
    score = partial(score_classes, names=metrics) if classes else score_numbers
    settings = {"folder": folder, "texts": texts, "label": label, "labels": classes, **layout}
    name = folder.lower().replace("-", "")
    read = partial(read_glue, **settings)
    return Task(name, "classification", read, score, metrics, ("train", *splits))


_ONE, _PAIR = ("sentence",), ("sentence1", "sentence2")
_COLA, _MNLI = ("source", "label", "mark", "sentence"), "entailment neutral contradiction"
_MATCHED = ("validation_matched", "validation_mismatched")
_ACCURACY, _BOTH = ("accuracy",), ("accuracy", "f1")

GLUE = (
    _task("CoLA", ("matthews",), _ONE, "label", "unacceptable acceptable", columns=_COLA),
    _task("SST-2", _ACCURACY, _ONE, "label", "negative positive"),
    _task("MRPC", _BOTH, ("#1 String", "#2 String"), "Quality", "not_equivalent equivalent"),
    _task("STS-B", ("pearson", "spearman"), _PAIR, "score", ""),
    # The published train.tsv has lines cut in two inside a question, which every reader leaves out:
    # https://github.com/nyu-mll/GLUE-baselines/issues/5
    _task(
        *("QQP", _BOTH, ("question1", "question2"), "is_duplicate", "not_duplicate duplicate"),
        skip_broken=True,
    ),
    _task("MNLI", _ACCURACY, _PAIR, "gold_label", _MNLI, _MATCHED, named=True),
    _task("QNLI", _ACCURACY, ("question", "sentence"), "label", ENTAILMENT, named=True),
    _task("RTE", _ACCURACY, _PAIR, "label", ENTAILMENT, named=True),
    _task("WNLI", _ACCURACY, _PAIR, "label", "not_entailment entailment"),
)
