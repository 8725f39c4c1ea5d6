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
from typing import Any

import pandas as pd
from datasets import ClassLabel, Dataset

from examples.tasks.base import Task, find_file, reading
from examples.tasks.metrics import score_classes, score_numbers
from jat_graph.core.files import read_text

ENTAILMENT = "entailment not_entailment"
_FILES = {
    "train": "train.tsv",
    "validation": "dev.tsv",
    "validation_matched": "dev_matched.tsv",
    "validation_mismatched": "dev_mismatched.tsv",
}


def _read_table(
    path: Path, wanted: list[str], columns: Sequence[str] | None = None, skip_broken: bool = False
) -> pd.DataFrame:
    """Read some columns, all of them named if the file has no names; nothing is unquoted."""
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
    if not isinstance(frame.index, pd.RangeIndex):  # the first columns are taken for one
        raise ValueError(f"more columns than {len(frame.columns)}")
    frame = frame.rename(columns=str.strip)[wanted]
    return frame.apply(lambda column: column.str.removesuffix("\r"))


def _task(
    folder: str,
    metrics: tuple[str, ...],
    texts: tuple[str, ...],
    label: str,
    labels: str,
    splits: tuple[str, ...] = ("validation",),
    named: bool = False,  # whether files have names of labels, and not numbers
    **layout: Any,
) -> Task:
    classes, columns = labels.split(), [*texts, label]
    codes = classes if named else [*map(str, range(len(classes)))]

    def read(data_dir: Path | None, split: str) -> Dataset:
        path = find_file(data_dir, f"glue/{folder}", _FILES[split])
        with reading(path, f"columns {', '.join(columns)}"):
            frame = _read_table(path, columns, **layout)
            if "skip_broken" in layout:
                frame = frame[frame[label].isin(codes)]
            said = [*frame[label]]
            wrong = [x for x in said if not isinstance(x, str) or (codes and x not in codes)]
            if wrong or not said:
                wanted, got = ", ".join(codes) or "numbers", repr(wrong[0]) if wrong else "none"
                raise ValueError(f"labels of {wanted} to be there, got {got}")
            pairs = zip(("text", "text_pair"), texts, strict=False)
            rows: dict[str, Any] = {column: [*frame[own]] for column, own in pairs}
            rows["label"] = [*map(codes.index if codes else float, said)]
        found = Dataset.from_dict(rows)
        return found.cast_column("label", ClassLabel(names=classes)) if classes else found

    score = partial(score_classes, names=metrics) if classes else score_numbers
    name = folder.lower().replace("-", "")
    return Task(name, "classification", read, score, metrics, ("train", *splits))


_ONE, _PAIR, _QUESTIONS = ("sentence",), ("sentence1", "sentence2"), ("question1", "question2")
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
    _task("QQP", _BOTH, _QUESTIONS, "is_duplicate", "not_duplicate duplicate", skip_broken=True),
    _task("MNLI", _ACCURACY, _PAIR, "gold_label", _MNLI, _MATCHED, named=True),
    _task("QNLI", _ACCURACY, ("question", "sentence"), "label", ENTAILMENT, named=True),
    _task("RTE", _ACCURACY, _PAIR, "label", ENTAILMENT, named=True),
    _task("WNLI", _ACCURACY, _PAIR, "label", "not_entailment entailment"),
)
