"""Rows of a person's own files: read as they are written, and checked before anything is trained.

A file's name is a name, never a pattern. What stands in a cell of a CSV file is text; JSON has
texts, numbers and lists. A text, word, label or answer that cannot be one makes a bad row, and the
first three of these are named.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset

from jat_graph.core.files import ESCAPED, check_unicode, read_text

logger = logging.getLogger(__name__)

Row = dict[Any, Any]  # of a table, with what stands beyond its last column as None
SEPARATORS = {".csv": ",", ".tsv": "\t"}


def read_rows(file: str, columns: Collection[str | None] = ()) -> list[Row]:
    """Read the rows of a file by its ending: .csv, .tsv, .json, .jsonl or .txt, also with .gz.

    A table has each of the ``columns`` once. Of its rows with too few cells the last ones are None.
    """
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"{file} must be a file, got none")
    ending = (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()
    text = read_text(file)
    if ending in SEPARATORS:
        return _table_rows(file, text, SEPARATORS[ending], columns)
    if ending in (".json", ".jsonl"):
        return _json_rows(file, text)
    if ending == ".txt":
        return [{"text": text}]
    raise ValueError(f"{file} must end in .csv, .tsv, .json, .jsonl or .txt, got {ending!r}")


def _table_rows(file: str, text: str, separator: str, columns: Collection[str | None]) -> list[Row]:
    csv.field_size_limit(sys.maxsize)  # a cell may hold a long document
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise ValueError(f"{file} must be a table, got {error} in line {reader.line_num}") from None
    header = [*(reader.fieldnames or ())]
    if not header:
        raise ValueError(f"{file} must begin with names of columns, got an empty line or file")
    other = next((sign for sign in ";\t,|" if len(header) == 1 and sign in header[0]), None)
    if other is not None:
        between = "commas" if separator == "," else "tabs"
        raise ValueError(f"{file} must have {between} between its columns, got {header[0]!r}")
    twice = next((name for name in columns if header.count(str(name)) > 1), None)
    if twice is not None:
        raise ValueError(f"{file} must have one column of a name, got {twice!r} twice")
    return rows


def _json_rows(file: str, text: str) -> list[Row]:
    check_unicode(file, text, ESCAPED)
    decoder, rows, place = json.JSONDecoder(), list[Any](), 0
    while rest := text[place : place + 1]:
        if rest.isspace():
            place += 1
            continue
        try:
            row, place = decoder.raw_decode(text, place)
        except RecursionError:
            raise ValueError(f"{file} must be JSON, got brackets nested too deeply") from None
        except ValueError as error:
            raise ValueError(f"{file} must be JSON: {error}") from None
        rows += row if isinstance(row, list) else [row]
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(f"row {number} of {file} must be a JSON object, got {row!r:.60}")
    return rows


def own_rows(
    rows: Sequence[Row], columns: Mapping[str | None, str], where: str, drop_bad: bool = False
) -> Dataset:
    """Return rows with these columns alone, checked and under their new names.

    Args:
        rows: What a file holds.
        columns: New names, ``text``, ``label`` and others of ``CHECKS``, by names in the file;
            None stands for no column.
        where: What the rows are, such as ``the train data``.
        drop_bad: Leave bad rows out, and say how many.

    Raises:
        ValueError: If a column is missing, there are bad rows, or labels are of two types.
    """
    names = {old: new for old, new in columns.items() if old is not None}
    if not rows:
        raise ValueError(f"{where} must have rows, got none")
    known = list(dict.fromkeys(name for row in rows for name in row if name is not None))
    missing = next((name for name in names if name not in known), None)
    if missing is not None:
        got = ", ".join(known)
        raise ValueError(f"{where} must have a column {missing!r}, got {got}")
    good, bad = list[Row](), list[str]()
    for number, row in enumerate(rows):
        try:
            good.append(_checked(row, names))
        except ValueError as error:
            bad.append(f"row {number}: {error}")
    told = f"{len(bad)} of {len(rows)} rows of {where} are bad: {'; '.join(bad[:3])}"
    if bad and (not drop_bad or not good):
        raise ValueError(told + ("; --drop_bad_rows true leaves them out" if good else ""))
    if bad:
        logger.warning("%s; they are left out", told)
    if "label" in names.values():
        good = _labelled(good, where)
    return Dataset.from_list(good)


def _checked(row: Row, names: Mapping[str, str]) -> Row:
    """Return a row under its new names, if it is good."""
    if None in row:
        raise ValueError(f"it has more cells than the header, got {row[None]!r:.60}")
    made = dict[str, Any]()
    for old, new in names.items():
        value = row.get(old)
        if value is None or (isinstance(value, str) and not value.strip()):
            raise ValueError(f"its {old} is {'missing' if value is None else 'empty'}")
        made[new] = CHECKS[new](f"its {old}", value)
    if "tags" in made and len(made["tokens"]) != len(made["tags"]):
        got = f"{len(made['tokens'])} and {len(made['tags'])}"
        raise ValueError(f"it must have a tag a word, got {got}")
    for text, start in zip(*made.get("answers", {}).values(), strict=True):
        found = made["context"][start : start + len(text)]
        if start < 0 or found != text:
            raise ValueError(f"answer {text!r:.40} must stand at {start}, got {found!r:.40} there")
    return made


def _text(name: str, value: Any) -> str:
    check_unicode(name, value)
    return str(value)


def _words(name: str, value: Any) -> list[str]:
    """Return words, of a list or separated by blanks."""
    if isinstance(value, str) and value.startswith(("['", '["')):
        raise ValueError(f"{name} must have blanks between words, got {value!r:.40}")
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not words:
        raise ValueError(f"{name} must have words, got {value!r:.40}")
    for word in words:
        if not isinstance(word, str | int) or isinstance(word, bool) or not str(word).strip():
            raise ValueError(f"{name} must have words, got {word!r} among them")
        check_unicode(name, str(word))
    return [*map(str, words)]


def _label(name: str, value: Any) -> Any:
    if not isinstance(value, str | int | float):
        raise ValueError(f"{name} must be a class or a number, got {value!r:.40}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return value


def _answers(name: str, value: Any) -> dict[str, list[Any]]:
    """Return the texts of answers, and where they start in characters."""
    if not isinstance(value, dict) or not {"text", "answer_start"} <= {*value}:
        raise ValueError(f"{name} must have answers with text and answer_start, got {value!r:.60}")
    texts, starts = value["text"], value["answer_start"]
    lists = isinstance(texts, list) and isinstance(starts, list)
    if not lists or len(texts) != len(starts):
        raise ValueError(
            f"{name} must have as many text as answer_start, in lists, got {value!r:.60}"
        )
    for text, start in zip(texts, starts, strict=True):
        if not isinstance(text, str) or not text:
            raise ValueError(f"{name} must have texts of answers, got {text!r}")
        if not isinstance(start, int) or isinstance(start, bool):
            raise ValueError(f"{name} must have whole numbers as answer_start, got {start!r}")
    return {"text": texts, "answer_start": starts}


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("text", "text_pair", "question", "context"), _text),
    **dict.fromkeys(("tokens", "tags"), _words),
    "label": _label,
    "answers": _answers,
}


def _labelled(rows: Sequence[Row], where: str) -> list[Row]:
    """Return rows whose labels are written out, as texts: all are texts, or all are numbers."""
    first: dict[str, str] = {}
    for number, row in enumerate(rows):
        first.setdefault(_kind(row["label"]), f"{row['label']!r} in row {number}")
    if len(first) > 1:
        raise ValueError(f"labels of {where} must be of one type, got {', '.join(first.values())}")
    return [row | {"label": _written(row["label"])} for row in rows]


def _kind(label: Any) -> str:
    return "text" if isinstance(label, str) else "truth" if isinstance(label, bool) else "number"


def _written(label: Any) -> str:
    """Return a label as text; JSON has one type of numbers, so that 1.0 is 1."""
    whole = isinstance(label, float) and label.is_integer()
    return label if isinstance(label, str) else json.dumps(int(label) if whole else label)


def as_numbers(labels: Iterable[str]) -> list[float] | None:
    """Return labels as finite numbers; None where one is not written as such."""
    try:
        found = [math.nan if "_" in label else float(label) for label in labels]
    except ValueError:
        return None
    return found if all(map(math.isfinite, found)) else None
