"""How each line of SuperGLUE's files becomes rows of a task."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from jat_graph.tasks.superglue_spans import Span, WrongSpanError, check_word, find_words, mark_spans

if TYPE_CHECKING:
    from datasets import Dataset

Line: TypeAlias = Mapping[str, Any]
Labels: TypeAlias = tuple[str, ...]
Reader: TypeAlias = Callable[[Line, Labels], Iterator[dict[str, Any]]]

BOOLEAN = ("False", "True")

# The words in which people were asked: Roemmele, Bejan and Gordon, 2011.
_COPA_QUESTIONS = {
    "cause": "What was the cause of this?",
    "effect": "What happened as a result?",
}

_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # JSON can say such, UTF-8 cannot

# Rows with a wrong span among this many right ones that a file to train on may have.
_GOOD_ROWS_PER_WRONG = 100

logger = logging.getLogger(__name__)


def make_rows(
    source: str, lines: Iterable[tuple[str, Line]], reader: Reader, labels: Labels, spare: bool
) -> Dataset:
    """Turn lines into rows."""
    from datasets import Dataset

    rows: list[dict[str, Any]] = []
    wrong: list[ValueError] = []
    for place, line in lines:
        try:
            rows += reader(line, labels)
        except ValueError as error:
            named = ValueError(f"{place}: the row {error}")
            if not (spare and isinstance(error, WrongSpanError)):
                raise named from None
            wrong.append(named)
    if len(wrong) * _GOOD_ROWS_PER_WRONG > len(rows):
        raise wrong[0]
    if wrong:
        logger.warning("left out %d rows with a wrong span, the first is %s", len(wrong), wrong[0])
    if not rows:
        raise ValueError(f"{source} must hold examples, got none")
    return Dataset.from_list(rows)


def copy_texts(*names: str) -> Reader:
    """A reader that takes texts as they are."""

    def read(line: Line, labels: Labels) -> Iterator[dict[str, Any]]:
        yield {name: _text(line, name) for name in names} | {"label": _label(line, labels)}

    return read


def read_copa(line: Line, labels: Labels) -> Iterator[dict[str, Any]]:
    """Ask for the cause or the effect of what is said."""
    question = line.get("question")
    if question not in tuple(_COPA_QUESTIONS):
        wanted = " or ".join(_COPA_QUESTIONS)
        raise ValueError(f"must have {wanted} as its question, got {question!r:.40}")
    yield {
        "prompt": f"{_text(line, 'premise')} {_COPA_QUESTIONS[question]}",
        "choices": [_text(line, name) for name in labels],
        "label": _label(line, labels),
    }


def read_multirc(line: Line, labels: Labels) -> Iterator[dict[str, Any]]:
    """Put each answer to each question about a paragraph behind its question."""
    passage, number = _part(line, "passage", dict), _integer(line, "idx")
    paragraph = _text(passage, "text")
    for question in _parts(passage, "questions"):
        for answer in _parts(question, "answers"):
            yield _multirc_row(
                paragraph,
                f"{number}-{_integer(question, 'idx')}",
                _text(question, "question"),
                _part(answer, "text", str),
                _label(answer, labels),
            )


def read_flat_multirc(line: Line, labels: Labels) -> Iterator[dict[str, Any]]:
    """Read an answer of MultiRC as the Hub has it."""
    numbers = _part(line, "idx", dict)
    yield _multirc_row(
        _text(line, "paragraph"),
        f"{_integer(numbers, 'paragraph')}-{_integer(numbers, 'question')}",
        _text(line, "question"),
        _part(line, "answer", str),
        _label(line, labels),
    )


def read_wic(line: Line, labels: Labels) -> Iterator[dict[str, Any]]:
    """Mark a word in two sentences, a few of which have an asterisk of their own."""
    row = {}
    for side in "12":
        sentence = _text(line, f"sentence{side}")
        span = Span(_integer(line, f"start{side}"), _integer(line, f"end{side}"))
        row[f"sentence{side}"] = mark_spans(sentence, [(check_word(sentence, span), "*")])
    yield row | {"label": _label(line, labels)}


def read_wsc(line: Line, labels: Labels) -> Iterator[dict[str, Any]]:
    """Mark a name and a pronoun in a text."""
    text = _text(line, "text")
    target = _part(line, "target", dict) if "target" in line else line
    marks = []
    for side, mark in (("1", "*"), ("2", "#")):
        words, index = _text(target, f"span{side}_text"), _integer(target, f"span{side}_index")
        marks.append((find_words(text, words, index), mark))
    yield {"text": mark_spans(text, marks), "label": _label(line, labels)}


def _multirc_row(
    paragraph: str, number: str, question: str, answer: str, label: int
) -> dict[str, Any]:
    said = f"{question} {answer}".strip()
    return {"paragraph": paragraph, "answer": said, "question": number, "label": label}


def _part(line: Line, name: str, kind: type) -> Any:
    """A part of a line, of the kind that it must be."""
    value = line.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = {str: "text", int: "an integer", dict: "an object", list: "a list"}
        got = "nothing" if value is None else f"{value!r:.40}"
        raise ValueError(f"must have {kinds[kind]} as {name!r}, got {got}")
    if isinstance(value, str) and _HALF_CHARACTER.search(value):
        raise ValueError(f"must have text as {name!r}, got half of a character in {value!r:.40}")
    return value


def _text(line: Line, name: str) -> str:
    text: str = _part(line, name, str)
    if not text.strip():
        raise ValueError(f"must have text as {name!r}, got none")
    return text


def _integer(line: Line, name: str) -> int:
    number: int = _part(line, name, int)
    return number


def _parts(line: Line, name: str) -> list[Line]:
    """A list of objects, at least one."""
    parts: list[Line] = _part(line, name, list)
    if not parts or not all(isinstance(part, dict) for part in parts):
        got = "none" if not parts else "others"
        raise ValueError(f"must have objects as {name!r}, got {got}")
    return parts


def _label(line: Line, labels: Labels) -> int:
    """The number of a label: a name of one in files of names, else a number or a truth."""
    label: Any = line.get("label")
    if isinstance(label, str) and label in labels:
        return labels.index(label)
    may_be_number = isinstance(label, int) and (labels == BOOLEAN or not isinstance(label, bool))
    if may_be_number and label in range(len(labels)):
        return int(label)
    raise ValueError(f"must have a label of {', '.join(labels)}, got {label!r:.40}")
