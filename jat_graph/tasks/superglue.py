"""SuperGLUE: seven harder tasks of understanding, from the original files or from the Hub."""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.tasks.base import ChoiceTask, ClassificationTask, LabelledTask
from jat_graph.tasks.sources import (
    file_lines,
    find_file,
    load_from_hub,
    plain_or_gzipped,
    stratified_split,
)
from jat_graph.tasks.superglue_readers import (
    BOOLEAN,
    Labels,
    Reader,
    copy_texts,
    make_rows,
    read_copa,
    read_flat_multirc,
    read_multirc,
    read_wic,
    read_wsc,
)

if TYPE_CHECKING:
    from datasets import Dataset

HUB_NAME = "aps/super_glue"

_TRAIN, _VALIDATION = "train", "validation"
_STEMS = {_TRAIN: "train", _VALIDATION: "val"}
_SHARES = {_VALIDATION: 0.2}  # of the validation set, where it is the only one

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class SuperGlueTask(LabelledTask):
    """A task of SuperGLUE; the meaning of labels is the Hub's.

    Args:
        folder: What the task's folder is called.
        reader: What becomes of a line of the files.
        hub_part: What the Hub calls the task.
        hub_columns: The columns that the Hub has for it, less ``label``.
        hub_reader: What becomes of the Hub's rows. (default: None, as of a line)
        part_of_train: A file with a part of the rows to train on, which is read, with a warning,
            where there is none with all. (default: None)
        train_may_be_missing: Whether there need be no file to train on: validation rows with four
            fifths of the values of ``source`` then serve as such, always the same, and a warning
            says so. (default: False)

    Reference:
        Wang et al., *SuperGLUE: A Stickier Benchmark for General-Purpose Language Understanding
        Systems*, NeurIPS 2019.
    """

    splits: tuple[str, ...] = tuple(_STEMS)
    primary_metric: str = "accuracy"
    folder: str
    reader: Reader
    hub_part: str
    hub_columns: tuple[str, ...]
    hub_reader: Reader | None = None
    part_of_train: str | None = None
    train_may_be_missing: bool = False

    @property
    @abstractmethod
    def label_names(self) -> Labels:
        """What files and the Hub call the labels."""

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read the original files, or ask the Hub."""
        if data_dir is None:
            return self._from_hub(splits)
        if self.train_may_be_missing and not self._has_train(data_dir):
            return self._cut_validation(data_dir, splits)
        return {split: self._from_file(data_dir, split) for split in splits}

    def _from_hub(self, splits: tuple[str, ...]) -> dict[str, Dataset]:
        columns = [*self.hub_columns, "label"]
        loaded = load_from_hub(self.name, HUB_NAME, self.hub_part, splits=splits, columns=columns)
        made = {}
        for split, rows in loaded.items():
            source, reader = f"the Hub's {split} split", self.hub_reader or self.reader
            lines = ((f"{source}, row {number}", row) for number, row in enumerate(rows))
            made[split] = make_rows(source, lines, reader, self.label_names, split == _TRAIN)
        return made

    def _from_file(self, folder: Path, split: str) -> Dataset:
        path = self._find(folder, split)
        if split == _TRAIN and self.part_of_train in (path.name, path.stem):
            logger.warning("%s: a part of the rows to train on, with no file of all", path)
        return make_rows(
            str(path), file_lines(path), self.reader, self.label_names, split == _TRAIN
        )

    def _cut_validation(self, folder: Path, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Cut the validation set in two."""
        every = self._from_file(folder, _VALIDATION)
        sources = list(every[self.source])
        known = list(dict.fromkeys(sources))
        drawn = stratified_split([0] * len(known), _SHARES)
        held = {known[place] for place in drawn[_VALIDATION]}
        rows: dict[str, list[int]] = {_TRAIN: [], _VALIDATION: []}
        for number, source in enumerate(sources):
            rows[_VALIDATION if source in held else _TRAIN].append(number)
        logger.warning(
            "%s: no file to train on beside it; %d of its %d rows serve as such, drawn by %s",
            self._find(folder, _VALIDATION),
            len(rows[_TRAIN]),
            len(sources),
            self.source,
        )
        return {split: every.select(rows[split]) for split in splits}

    def _has_train(self, folder: Path) -> bool:
        try:
            self._find(folder, _TRAIN)
        except FileNotFoundError:
            return False
        return True

    def _find(self, folder: Path, split: str) -> Path:
        names = [f"{_STEMS[split]}.jsonl"]
        if split == _TRAIN and self.part_of_train is not None:
            names.append(self.part_of_train)
        homes = (self.folder, f"superglue/{self.folder}", f"SuperGLUE/{self.folder}")
        return find_file(folder, self.name, homes, plain_or_gzipped(*names))


@dataclass(frozen=True, kw_only=True)
class SuperGlueClassification(SuperGlueTask, ClassificationTask):
    """A task of SuperGLUE that any classifier of texts or pairs can be trained for."""

    @property
    def label_names(self) -> Labels:
        """The names of the classes."""
        return self.labels or ()


@dataclass(frozen=True, kw_only=True)
class CopaTask(SuperGlueTask, ChoiceTask):
    """Choose the likelier cause or effect of what is said.

    Reference:
        Roemmele, Bejan and Gordon, *Choice of Plausible Alternatives: An Evaluation of Commonsense
        Causal Reasoning*, AAAI Spring Symposium 2011.
    """

    num_choices: int = 2

    @property
    def label_names(self) -> Labels:
        """What files and the Hub call the choices."""
        return tuple(f"choice{number}" for number in range(1, self.num_choices + 1))


SUPERGLUE_TASKS: tuple[SuperGlueTask, ...] = (
    SuperGlueClassification(
        name="cb",
        folder="CB",
        hub_part="cb",
        reader=copy_texts("premise", "hypothesis"),
        hub_columns=("premise", "hypothesis"),
        text_columns=("premise", "hypothesis"),
        labels=("entailment", "contradiction", "neutral"),
        other_metrics=("macro_f1",),
    ),
    # The published validation set has 245 passages with several questions.
    SuperGlueClassification(
        name="boolq",
        folder="BoolQ",
        hub_part="boolq",
        reader=copy_texts("passage", "question"),
        hub_columns=("passage", "question"),
        text_columns=("passage", "question"),
        labels=BOOLEAN,
        source="passage",
        train_may_be_missing=True,
    ),
    CopaTask(
        name="copa",
        folder="COPA",
        hub_part="copa",
        reader=read_copa,
        hub_columns=("premise", "choice1", "choice2", "question"),
    ),
    SuperGlueClassification(
        name="multirc",
        folder="MultiRC",
        hub_part="multirc",
        reader=read_multirc,
        hub_columns=("paragraph", "question", "answer", "idx"),
        hub_reader=read_flat_multirc,
        text_columns=("paragraph", "answer"),
        labels=BOOLEAN,
        source="paragraph",
        group="question",
        primary_metric="f1",
        other_metrics=("exact_match",),
    ),
    SuperGlueClassification(
        name="wic",
        folder="WiC",
        hub_part="wic",
        reader=read_wic,
        hub_columns=("sentence1", "sentence2", "start1", "start2", "end1", "end2"),
        text_columns=("sentence1", "sentence2"),
        labels=BOOLEAN,
    ),
    SuperGlueClassification(
        name="wsc",
        folder="WSC",
        hub_part="wsc.fixed",
        reader=read_wsc,
        hub_columns=("text", "span1_index", "span2_index", "span1_text", "span2_text"),
        text_columns=("text",),
        labels=BOOLEAN,
        # Where only smaller copies can be had, labels can be found for 401 of the 554 rows; put
        # together, they have this name.
        part_of_train="train_partial401.jsonl",
    ),
    # The pairs of GLUE's rte, in the same order with the same labels; 70 of those to train on and 6
    # of the others have lost quotation marks.
    SuperGlueClassification(
        name="superrte",
        folder="RTE",
        hub_part="rte",
        reader=copy_texts("premise", "hypothesis"),
        hub_columns=("premise", "hypothesis"),
        text_columns=("premise", "hypothesis"),
        labels=("entailment", "not_entailment"),
    ),
)
