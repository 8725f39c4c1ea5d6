"""GLUE: nine tasks of understanding sentences, from the original files or from the Hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.tasks.base import ClassificationTask
from jat_graph.tasks.sources import load_from_hub
from jat_graph.tasks.tables import Layout, find_table, read_table

if TYPE_CHECKING:
    from datasets import Dataset

HUB_NAME = "nyu-mll/glue"

_FILES = {
    "train": "train",
    "validation": "dev",
    "validation_matched": "dev_matched",
    "validation_mismatched": "dev_mismatched",
}
_SPLITS = ("train", "validation")
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")


@dataclass(frozen=True, kw_only=True)
class GlueTask(ClassificationTask):
    """A task of GLUE; names, columns and the meaning of labels are the Hub's.

    Args:
        layout: How the lines of the original files are built.

    Reference:
        Wang et al., *GLUE: A Multi-Task Benchmark and Analysis Platform for Natural Language
        Understanding*, ICLR 2019.
    """

    layout: Layout

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read the original files, or ask the Hub."""
        from datasets import Dataset

        if data_dir is None:
            columns = (*self.text_columns, "label")
            return load_from_hub(self.name, HUB_NAME, self.name, splits=splits, columns=columns)
        paths = {split: find_table(data_dir, self.name, _FILES[split]) for split in splits}
        return {
            split: Dataset.from_dict(read_table(path, self.layout, self.text_columns))
            for split, path in paths.items()
        }


GLUE_TASKS: tuple[GlueTask, ...] = (
    GlueTask(
        name="cola",
        text_columns=("sentence",),
        labels=("unacceptable", "acceptable"),
        splits=_SPLITS,
        primary_metric="matthews",
        layout=Layout(
            texts=("sentence",), label="label", columns=("source", "label", "mark", "sentence")
        ),
    ),
    GlueTask(
        name="sst2",
        text_columns=("sentence",),
        labels=("negative", "positive"),
        splits=_SPLITS,
        primary_metric="accuracy",
        layout=Layout(texts=("sentence",), label="label"),
    ),
    GlueTask(
        name="mrpc",
        text_columns=_PAIR,
        labels=("not_equivalent", "equivalent"),
        splits=_SPLITS,
        primary_metric="accuracy",
        other_metrics=("f1",),
        layout=Layout(texts=("#1 String", "#2 String"), label="Quality"),
    ),
    GlueTask(
        name="stsb",
        text_columns=_PAIR,
        labels=None,
        splits=_SPLITS,
        primary_metric="pearson",
        other_metrics=("spearman",),
        layout=Layout(texts=_PAIR, label="score", codes=None),
    ),
    GlueTask(
        name="qqp",
        text_columns=("question1", "question2"),
        labels=("not_duplicate", "duplicate"),
        splits=_SPLITS,
        primary_metric="accuracy",
        other_metrics=("f1",),
        # The published train.tsv has lines cut in two inside a question (line 97931 is one), which
        # every reader leaves out: https://github.com/nyu-mll/GLUE-baselines/issues/5
        layout=Layout(texts=("question1", "question2"), label="is_duplicate", broken_lines=True),
    ),
    GlueTask(
        name="mnli",
        text_columns=("premise", "hypothesis"),
        labels=("entailment", "neutral", "contradiction"),
        splits=("train", "validation_matched", "validation_mismatched"),
        primary_metric="accuracy",
        layout=Layout(
            texts=_PAIR, label="gold_label", codes=("entailment", "neutral", "contradiction")
        ),
    ),
    GlueTask(
        name="qnli",
        text_columns=("question", "sentence"),
        labels=_ENTAILMENT,
        splits=_SPLITS,
        primary_metric="accuracy",
        layout=Layout(texts=("question", "sentence"), label="label", codes=_ENTAILMENT),
    ),
    GlueTask(
        name="rte",
        text_columns=_PAIR,
        labels=_ENTAILMENT,
        splits=_SPLITS,
        primary_metric="accuracy",
        layout=Layout(texts=_PAIR, label="label", codes=_ENTAILMENT),
    ),
    GlueTask(
        name="wnli",
        text_columns=_PAIR,
        labels=("not_entailment", "entailment"),
        splits=_SPLITS,
        primary_metric="accuracy",
        layout=Layout(texts=_PAIR, label="label"),
    ),
)
