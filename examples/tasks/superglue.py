"""SuperGLUE: seven harder tasks of understanding, from the original files.

``wic`` and ``wsc`` have marks around the words that they ask about, ``* board *`` and ``# it #``,
so that any classifier can read them. ``superrte`` has the pairs of GLUE's ``rte``, some of which
have lost quotation marks.

Reference:
    Wang et al., *SuperGLUE: A Stickier Benchmark for General-Purpose Language Understanding
    Systems*, NeurIPS 2019.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from datasets import Dataset

from examples.tasks.base import Task, find_file, label_rows, read_lines, reading
from examples.tasks.glue import ENTAILMENT
from examples.tasks.metrics import score_classes

Line: TypeAlias = Mapping[str, Any]
Reader: TypeAlias = Callable[[Line], Iterator[dict[str, Any]]]

BOOLEAN = ("False", "True")
_STEMS = {"train": "train.jsonl", "validation": "val.jsonl"}
_CLOSING = ".,;:!?"
_SHORT_NOT = re.compile(r"n['’]t\b", re.IGNORECASE)
_GOOD_ROWS_PER_WRONG = 100  # rows with a wrong span that a file to train on may have
# The words in which people were asked: Roemmele, Bejan and Gordon, *Choice of Plausible
# Alternatives*, 2011.
_COPA_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}

logger = logging.getLogger(__name__)


class WrongSpanError(ValueError):
    """Words do not stand where a file says."""


def read_pair(line: Line, first: str, second: str) -> Iterator[dict[str, Any]]:
    """Take two texts as they are."""
    yield {"text": line[first], "text_pair": line[second], "label": line["label"]}


def read_copa(line: Line) -> Iterator[dict[str, Any]]:
    """Ask for the cause or the effect of what is said."""
    text = f"{line['premise']} {_COPA_QUESTIONS[line['question']]}"
    yield {"text": text, "choices": [line["choice1"], line["choice2"]], "label": line["label"]}


def read_multirc(line: Line) -> Iterator[dict[str, Any]]:
    """Put each answer to each question about a paragraph behind its question."""
    passage = line["passage"]
    for question in passage["questions"]:
        for answer in question["answers"]:
            yield {
                "text": passage["text"],
                "text_pair": f"{question['question']} {answer['text']}".strip(),
                "question": f"{line['idx']}-{question['idx']}",
                "label": answer["label"],
            }


def read_wic(line: Line) -> Iterator[dict[str, Any]]:
    """Mark a word in two sentences."""
    row = {}
    for column, side in (("text", "1"), ("text_pair", "2")):
        sentence, span = line[f"sentence{side}"], (line[f"start{side}"], line[f"end{side}"])
        check_word(sentence, *span)
        row[column] = mark_spans(sentence, [(span, "*")])
    yield row | {"label": line["label"]}


def read_wsc(line: Line) -> Iterator[dict[str, Any]]:
    """Mark a name and a pronoun in a text."""
    text, target = line["text"], line["target"]
    marks = [
        (find_words(text, target[f"span{side}_text"], target[f"span{side}_index"]), mark)
        for side, mark in (("1", "*"), ("2", "#"))
    ]
    yield {"text": mark_spans(text, marks), "label": line["label"]}


def mark_spans(text: str, marks: Iterable[tuple[tuple[int, int], str]]) -> str:
    """Put a mark on both sides of pieces of a text, as a word of its own, as T5's code does."""
    # At one place what ends there ends first, inner before outer; then outer begins before inner.
    events = [(stop, 0, -start, f" {mark}") for (start, stop), mark in marks]
    events += [(start, 1, -stop, f"{mark} ") for (start, stop), mark in marks]
    pieces, done = [], 0
    for index, _, _, piece in sorted(events):
        pieces += [text[done:index], piece]
        done = index
    return "".join([*pieces, text[done:]])


def find_words(text: str, words: str, index: int) -> tuple[int, int]:
    """Find words by the number of their first; capitals, blanks and a last mark do not matter."""
    # One span of the published validation set of WSC is a word late: neighbours are looked at, too.
    core = words.rstrip(_CLOSING)
    said = r"\s+".join(map(re.escape, core.split()))
    pattern = re.compile(rf"{said}(?:{re.escape(words[len(core) :])})?(?!\w)", re.IGNORECASE)
    starts = [found.start() for found in re.finditer(r"\S+", text)]
    for number in (index, index - 1, index + 1):
        found = pattern.match(text, starts[number]) if 0 <= number < len(starts) else None
        if found is not None:
            return found.span()
    raise WrongSpanError(f"must have {words!r} as word {index} of {len(starts)}, got another")


def check_word(text: str, start: int, stop: int) -> None:
    """Check that a piece of a text is made of whole words, which may be before a short "not"."""
    inside = 0 <= start < stop <= len(text)
    begins = inside and text[start].isalnum() and not (start and text[start - 1].isalnum())
    ends = inside and text[stop - 1].isalnum() and not text[stop : stop + 1].isalnum()
    if not (begins and (ends or _SHORT_NOT.match(text, stop))):
        raise WrongSpanError(f"must have whole words from {start} to {stop} of {text!r:.40}")


def read_rows(path: Path, reader: Reader, labels: Sequence[str], *, spare: bool) -> Dataset:
    """Read a file; a few rows with a wrong span are left out where ``spare`` says so."""
    rows: list[dict[str, Any]] = []
    wrong: list[str] = []
    for index, line in read_lines(path):
        with reading(index, "SuperGLUE"):
            try:
                own = [*reader(line)]
            except WrongSpanError as error:
                wrong.append(f"{index}: the row {error}")
                continue
            for row in own:  # files have the name of a class, its number or a truth
                label = row["label"]
                label = labels.index(label) if label in labels else label
                if label not in range(len(labels)):
                    raise ValueError(f"a label of {label!r}, not of {', '.join(labels)}")
                rows.append({**row, "label": int(label)})
    if wrong and (not spare or len(wrong) * _GOOD_ROWS_PER_WRONG > len(rows)):
        raise ValueError(wrong[0])
    if wrong:
        logger.warning("left out %d rows with a wrong span, the first is %s", len(wrong), wrong[0])
    return label_rows(rows, labels)


def _task(
    name: str,
    folder: str,
    reader: Reader,
    labels: Sequence[str],
    metrics: tuple[str, ...] = ("accuracy",),
    **settings: Any,
) -> Task:
    def read(data_dir: Path | None, split: str) -> Dataset:
        path = find_file(data_dir, f"superglue/{folder}", _STEMS[split])
        return read_rows(path, reader, labels, spare=split == "train")

    score = partial(score_classes, names=metrics)
    return Task(name, "classification", read, score, metrics, **settings)


_passage = partial(read_pair, first="passage", second="question")
_premise = partial(read_pair, first="premise", second="hypothesis")
_THREE = ("entailment", "contradiction", "neutral")
_ALL = {"source": "text", "group": "question"}

SUPERGLUE = (
    _task("cb", "CB", _premise, _THREE, ("accuracy", "macro_f1")),
    _task("boolq", "BoolQ", _passage, BOOLEAN, source="text"),
    _task("copa", "COPA", read_copa, ("choice1", "choice2")),
    _task("multirc", "MultiRC", read_multirc, BOOLEAN, ("f1", "exact_match"), **_ALL),
    _task("wic", "WiC", read_wic, BOOLEAN),
    _task("wsc", "WSC", read_wsc, BOOLEAN),
    _task("superrte", "RTE", _premise, ENTAILMENT.split()),
)
