"""Named entities in the columns of the CoNLL tasks: WNUT-17 and CoNLL-2003."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.tasks.sources import find_file, plain_or_gzipped, read_text
from jat_graph.tasks.tagging import TaggingTask, find_spans, write_tags

if TYPE_CHECKING:
    from datasets import Dataset

_NEW_DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True, kw_only=True)
class ConllTask(TaggingTask):
    """Find named entities in files of columns: a word a line, a blank line after each sentence.

    The word is in the first column and its tag in the last, between tabs or spaces. Tags are BIO,
    or IOB1, where only an entity that follows one of its own type begins with ``B-``; both are
    read as BIO. Lines that begin a document are left out. The Hub has the files only beside code
    that would have to be run, so they are not loaded by name.

    Args:
        train_files: What the file to train on may be called.
        validation_files: What the dev file may be called.

    Reference:
        Derczynski et al., *Results of the WNUT2017 Shared Task on Novel and Emerging Entity
        Recognition*, W-NUT 2017; Tjong Kim Sang and De Meulder, *Introduction to the CoNLL-2003
        Shared Task*, CoNLL 2003.
    """

    splits: tuple[str, ...] = ("train", "validation")
    train_files: tuple[str, ...]
    validation_files: tuple[str, ...]

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read a file of columns for each split."""
        from datasets import Dataset

        files = {"train": self.train_files, "validation": self.validation_files}
        loaded = {}
        for split in splits:
            path = find_file(data_dir, self.name, (self.name,), plain_or_gzipped(*files[split]))
            sentences = read_columns(path, self.labels)
            rows = [{"tokens": words, "tags": tags} for words, tags in sentences]
            loaded[split] = Dataset.from_list(rows)
        return loaded


WNUT17 = ConllTask(
    name="wnut17",
    types=("corporation", "creative-work", "group", "location", "person", "product"),
    train_files=("wnut17train.conll",),
    validation_files=("emerging.dev.conll",),
)

CONLL2003 = ConllTask(
    name="conll2003",
    types=("LOC", "MISC", "ORG", "PER"),
    train_files=("eng.train", "train.txt"),
    validation_files=("eng.testa", "valid.txt"),
)


def read_columns(path: Path, labels: Sequence[str]) -> list[tuple[list[str], list[str]]]:
    """Read a file of columns."""
    known = frozenset(labels)
    sentences: list[tuple[list[str], list[str]]] = []
    columns, inside = None, False
    for number, fields in _lines(path):
        if not fields:
            inside = False
            continue
        columns = columns or max(2, len(fields))
        _check(path, number, fields, columns, known)
        if not inside:
            sentences.append(([], []))
            inside = True
        sentences[-1][0].append(fields[0])
        sentences[-1][1].append(fields[-1])
    if not sentences:
        raise ValueError(f"{path} must hold sentences, got none")
    return [(words, write_tags(find_spans(tags), len(tags))) for words, tags in sentences]


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield number and columns of each line: none where a sentence or a document ends."""
    # nothing but a line feed ends a line: some words are rare signs that would
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        text = line.strip(" \t\r")
        fields = text.split("\t") if "\t" in text else re.split(" +", text)
        yield number, [] if not text or fields[0] == _NEW_DOCUMENT else fields


def _check(path: Path, number: int, fields: list[str], columns: int, known: frozenset[str]) -> None:
    if len(fields) != columns:
        got = len(fields)
        raise ValueError(f"{path}, line {number}: the row must have {columns} columns, got {got}")
    if fields[-1] not in known:
        tags = ", ".join(sorted(known))
        raise ValueError(
            f"{path}, line {number}: the tag must be one of {tags}, got {fields[-1]!r}"
        )
