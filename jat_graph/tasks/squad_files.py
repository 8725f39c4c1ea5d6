"""Files in SQuAD's layout: articles of paragraphs with questions, whose answers have a place."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

from jat_graph.tasks.sources import read_json


def read_squad(path: Path, *, may_be_unanswerable: bool) -> list[dict[str, Any]]:
    """Read a file whose answers stand where it says."""
    rows: dict[str, dict[str, Any]] = {}
    for context, entry in chain.from_iterable(read_articles(path)):
        name = entry["id"]
        if name in rows:
            raise ValueError(f"{path}: question {name} must be there once, got it twice")
        check_question(path, context, entry)
        if may_be_unanswerable and entry.get("is_impossible"):
            answers = _no_answers(path, entry)
        else:
            answers = check_answers(path, entry)
        for answer in answers:
            _check_place(path, context, name, answer)
        rows[name] = {
            "id": name,
            "question": entry["question"],
            "context": context,
            "answers": {key: [a[key] for a in answers] for key in ("text", "answer_start")},
        }
    if not rows:
        raise ValueError(f"{path} must hold questions, got none")
    return list(rows.values())


def read_articles(path: Path) -> list[list[tuple[Any, dict[str, Any]]]]:
    """Read a file, whatever its questions and answers are."""
    content = read_json(path)
    try:
        return [
            [
                (paragraph.get("context"), {**entry, "id": str(entry["id"])})
                for paragraph in article["paragraphs"]
                for entry in paragraph["qas"]
            ]
            for article in content["data"]
        ]
    except (AttributeError, KeyError, TypeError) as error:
        got = f"no {error}" if isinstance(error, KeyError) else "something else"
        raise ValueError(f"{path} must have the layout of SQuAD, got {got}") from None


def check_question(path: Path, context: Any, entry: dict[str, Any]) -> None:
    """Refuse a question without text or context."""
    for part, text in (("text", entry.get("question")), ("a context", context)):
        if not (isinstance(text, str) and text.strip()):
            raise ValueError(f"{path}: question {entry['id']} must have {part}, got {text!r}")


def check_answers(path: Path, entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Refuse a question without answers, and answers without text or place."""
    answers = entry.get("answers")
    if not (isinstance(answers, list) and answers):
        raise ValueError(f"{path}: question {entry['id']} must have an answer, got {answers!r}")
    for answer in answers:
        found = answer if isinstance(answer, dict) else {}
        text, start = found.get("text"), found.get("answer_start")
        is_place = isinstance(start, int) and not isinstance(start, bool)
        if not (isinstance(text, str) and text.strip() and is_place):
            raise ValueError(
                f"{path}: question {entry['id']} must have answers with text and answer_start, "
                f"got {answer!r}"
            )
    return answers


def _no_answers(path: Path, entry: dict[str, Any]) -> list[dict[str, Any]]:
    if entry.get("answers"):
        raise ValueError(
            f"{path}: question {entry['id']} is_impossible and must have no answer, "
            f"got {len(entry['answers'])}"
        )
    return []


def _check_place(path: Path, context: str, name: str, answer: dict[str, Any]) -> None:
    text, start = answer["text"], answer["answer_start"]
    if start < 0 or not context.startswith(text, start):
        got = context[max(0, start) : max(0, start) + len(text)]
        raise ValueError(
            f"{path}: question {name} must have the answer {text!r} at character {start} of its "
            f"context, got {got!r} there"
        )
