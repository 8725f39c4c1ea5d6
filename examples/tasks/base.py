"""What a task is: the splits of a data set, and how what a model says is measured."""

from __future__ import annotations

import random
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from datasets import ClassLabel, Dataset, List
from datasets.exceptions import DatasetsError

from jat_graph.core.files import parse_object, read_text

Splits: TypeAlias = dict[str, Dataset]
Score: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], dict[str, float]]


@dataclass(frozen=True)
class Task:
    """Something to train for and be measured at."""

    name: str
    kind: str  # the script that trains it: classification, question_answering, tagging …
    read: Callable[[Path | None, str], Dataset | Splits]  # a split of a folder, or all at once
    score: Score | None  # of what was said and is right, an entry each; None, only losses count
    metrics: tuple[str, ...]  # of those that score gives; the first decides what is best
    splits: tuple[str, ...] = ("train", "validation")
    source: str | None = None  # column: rows held out share no entry with others, as a paragraph
    group: str | None = None  # column whose value the rows of one example share
    by: str | None = None  # column with the size of an example, by which scores are told apart
    longest_answer: int = 128  # tokens of an answer to a question
    vocabulary_size: int | None = None  # of tokens that need no tokenizer

    @property
    def primary_metric(self) -> str:
        """The measure that papers report."""
        return self.metrics[0]

    @property
    def greater_is_better(self) -> bool:
        """Whether more of it is better: not of how surprised a language model is."""
        return self.kind != "language_modelling"

    def load(self, data_dir: str | Path | None, names: Sequence[str] | None = None) -> Splits:
        """Read splits, all unless some are named; files of others may be missing."""
        if data_dir is not None and not Path(data_dir).is_dir():
            raise FileNotFoundError(f"data_dir must be a folder, got {data_dir}")
        chosen = self.splits if names is None else tuple(names)
        for name in chosen:
            if name not in self.splits:
                wanted = ", ".join(self.splits)
                raise ValueError(f"split of task {self.name} must be one of {wanted}, got {name!r}")
        found: Splits = {}
        for name in chosen:
            if name not in found:
                read = self.read(None if data_dir is None else Path(data_dir), name)
                found |= read if isinstance(read, dict) else {name: read}
        return {name: found[name] for name in chosen}

    def measure(self, said: Sequence[Any], right: Sequence[Any]) -> dict[str, float]:
        """Compare what a model said with what is right; any selection of examples will do."""
        if self.score is None or not len(said) == len(right) > 0:
            raise ValueError(f"said and right must have one length, got {len(said)}, {len(right)}")
        scores = self.score(said, right)
        sizes = {name: value for name, value in scores.items() if name.startswith("accuracy_")}
        return {name: scores[name] for name in self.metrics} | sizes


def find_file(data_dir: Path | None, home: str, *names: str) -> Path:
    """A file, plain or packed, in a folder or in its home inside; homes in any letters' case."""
    if data_dir is None:
        raise ValueError(f"{names[0]} is read from a folder: name it with --data_dir")
    if not data_dir.is_dir():
        raise FileNotFoundError(f"data_dir must be a folder, got {data_dir}")
    last = Path(home).name
    for index in dict.fromkeys((home, home.lower(), last, last.lower(), "")):
        for name in (packed for plain in names for packed in (plain, f"{plain}.gz")):
            if (data_dir / index / name).exists():
                return data_dir / index / name
    wanted, places = " or ".join(names), f"itself or in {' or '.join(dict.fromkeys((home, last)))}"
    there = ", ".join(sorted(path.name for path in data_dir.iterdir())[:9]) or "nothing"
    raise FileNotFoundError(f"data_dir {data_dir} must hold {wanted}, {places}, got {there}")


# What reading a file that is cut off, damaged or of another kind may raise.
_BROKEN = (AttributeError, EOFError, LookupError, OSError, RuntimeError, StopIteration, TypeError)
_BROKEN += (ValueError, DatasetsError, tarfile.TarError, zipfile.BadZipFile, zlib.error)


@contextmanager
def reading(where: object, layout: str) -> Iterator[None]:
    """Say in one line of a file, or of a line of it, that it cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{where} must be a file, got none") from None
    except _BROKEN as error:
        cause = error.__cause__ or error
        got = f"no {cause}" if isinstance(cause, KeyError) else str(cause).partition("\n")[0]
        raise ValueError(f"{where} must have the layout of {layout}, got {got}") from None


def read_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, and where each stands."""
    # Not by splitlines: a text may hold one of Unicode's own line ends.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield (index := f"{path}, line {number}"), parse_object(line, index)


def label_rows(rows: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Dataset:
    """Rows whose column ``label`` has numbers of classes, with the names of these."""
    if not rows:
        raise ValueError(f"there must be rows of {', '.join(labels)}, got none")
    return Dataset.from_list([*rows]).cast_column("label", ClassLabel(names=[*labels]))


def tag_rows(
    sentences: Sequence[tuple[Sequence[str], Sequence[str]]], tags: Sequence[str]
) -> Dataset:
    """Sentences as words and tags of them."""
    number = {tag: index for index, tag in enumerate(tags)}
    unknown = next((tag for _, own in sentences for tag in own if tag not in number), None)
    if unknown is not None:
        raise ValueError(f"tags must be among {', '.join(tags)}, got {unknown!r}")
    rows = [{"tokens": [*words], "tags": [number[t] for t in own]} for words, own in sentences]
    return Dataset.from_list(rows).cast_column("tags", List(ClassLabel(names=[*tags])))


def stratified_split(classes: Sequence[Any], shares: dict[str, float]) -> dict[str, list[int]]:
    """Draw splits in which each class has its share, rounded; the same for the same classes."""
    members: dict[Any, list[int]] = defaultdict(list)
    for row, name in enumerate(classes):
        members[name].append(row)
    splits: dict[str, list[int]] = {split: [] for split in ("train", *shares)}
    for name, rows in members.items():
        random.Random(f"split {name}").shuffle(rows)  # a text is hashed the same way everywhere
        start = 0
        for split, share in shares.items():
            stop = start + round(share * len(rows))
            splits[split] += rows[start:stop]
            start = stop
        splits["train"] += rows[start:]
    return {split: sorted(rows) for split, rows in splits.items()}
