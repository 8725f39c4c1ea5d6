"""GLUE's original files: tab-separated, plain or gzipped, one example a line."""

from __future__ import annotations

import gzip
import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jat_graph.tasks.sources import find_file, plain_or_gzipped, reading

# Broken lines among this many good ones that a file may have where its layout allows any.
_GOOD_LINES_PER_BROKEN = 1000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """How the lines of a task's files are built."""

    texts: tuple[str, ...]  # the file's names of the columns with text
    label: str  # and of the one with the label
    codes: tuple[str, ...] | None = ("0", "1")  # of classes 0, 1 …; None for numbers in ``bounds``
    columns: tuple[str, ...] | None = None  # of files whose first line does not name them
    bounds: tuple[float, float] = (0.0, 5.0)  # of a regression, as in STS-B
    # Leave out lines with another number of columns, and say so, if at most one in a thousand is.
    broken_lines: bool = False


@dataclass(frozen=True)
class _Reader:
    """One file's header, checked, and how to read its rows."""

    path: Path
    layout: Layout
    columns: tuple[str, ...]

    def split(self, number: int, line: str) -> list[str]:
        fields = line.split("\t")
        if len(fields) != len(self.columns):
            raise self.error(number, f"must have {len(self.columns)} columns, got {len(fields)}")
        return fields

    def texts(self, number: int, fields: list[str]) -> list[str]:
        texts = [fields[self.columns.index(name)] for name in self.layout.texts]
        if not any(text.strip() for text in texts):
            raise self.error(number, "must have text, got none")
        return texts

    def label(self, number: int, fields: list[str]) -> int | float:
        text, codes = fields[self.columns.index(self.layout.label)], self.layout.codes
        if codes is None:
            return self._number(number, text)
        if text not in codes:
            raise self.error(number, f"must have a label of {', '.join(codes)}, got {text!r}")
        return codes.index(text)

    def _number(self, number: int, text: str) -> float:
        low, high = self.layout.bounds
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise self.error(number, f"must have a score from {low:g} to {high:g}, got {text!r}")
        return value

    def error(self, number: int, problem: str) -> ValueError:
        return ValueError(f"{self.path}, line {number}: the row {problem}")


def find_table(folder: Path, task: str, stem: str) -> Path:
    """A task's file in a folder, or in the task's own inside that or its GLUE, however spelled."""
    inside = (*sorted(folder.glob("*")), *sorted(folder.glob("[Gg][Ll][Uu][Ee]/*")))
    homes = [str(path.relative_to(folder)) for path in inside if plain_name(path.name) == task]
    return find_file(folder, task, homes, plain_or_gzipped(f"{stem}.tsv"))


def plain_name(name: str) -> str:
    """A task's name as the Hub spells it."""
    return name.strip().lower().replace("-", "").replace("_", "")


def read_table(path: Path, layout: Layout, text_columns: tuple[str, ...]) -> dict[str, list[Any]]:
    """Read a file of examples.

    Nothing is unquoted: a quotation mark in these files is part of the text.
    """
    names = (*text_columns, "label")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for row in _rows(path, layout):
        for name, value in zip(names, row, strict=True):
            columns[name].append(value)
    if not columns["label"]:
        raise ValueError(f"{path} must hold examples, got none")
    return columns


def _rows(path: Path, layout: Layout) -> Iterator[list[Any]]:
    """Yield the texts and the label of each line, one after the other."""
    lines = _lines(path)
    reader = _Reader(path, layout, layout.columns or _header(path, layout, next(lines, None)))
    broken: list[tuple[int, ValueError]] = []
    number, good = 0, 0
    for number, line in lines:
        try:
            fields = reader.split(number, line)
        except ValueError as error:
            if not layout.broken_lines:
                raise
            broken.append((number, error))
            continue
        good += 1
        yield [*reader.texts(number, fields), reader.label(number, fields)]
    _judge(path, broken, last=number, good=good)


def _judge(path: Path, broken: list[tuple[int, ValueError]], *, last: int, good: int) -> None:
    """Accept few broken lines, but not that the file ends with one: it has been cut off."""
    if not broken:
        return
    if broken[-1][0] == last:
        raise broken[-1][1]
    if len(broken) * _GOOD_LINES_PER_BROKEN > good:
        raise broken[0][1]
    first = broken[0][0]
    logger.warning("%s: left out %d broken lines, the first is %d", path, len(broken), first)


def _header(path: Path, layout: Layout, line: tuple[int, str] | None) -> tuple[str, ...]:
    if line is None:
        raise ValueError(f"{path} must hold a header and examples, got an empty file")
    found = tuple(line[1].split("\t"))
    wanted = (*layout.texts, layout.label)
    for name in wanted:
        if name not in found:
            raise ValueError(
                f"{path}, line 1: the header must name {', '.join(wanted)}; "
                f"{name!r} is not in {', '.join(found)!r}"
            )
    return found


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; a line ends with a newline and nothing else."""
    with reading(path), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield number, _decode(path, number, line)


def _decode(path: Path, number: int, line: bytes) -> str:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        problem = f"bad byte at column {error.start + 1}"
        raise ValueError(f"{path}, line {number}: the row must be UTF-8, got a {problem}") from None
    return text.removesuffix("\n").removesuffix("\r")
