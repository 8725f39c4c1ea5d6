"""Questions about texts in SQuAD's layout: SQuAD 1.1 and 2.0, and COVID-QA's articles.

In SQuAD 2.0 some questions have no answer in the paragraph, and ``answers`` is empty there; see
:func:`examples.tasks.metrics.score_doubted_answers`.

Reference:
    Rajpurkar et al., *SQuAD: 100,000+ Questions for Machine Comprehension of Text*, EMNLP 2016;
    Rajpurkar, Jia and Liang, *Know What You Don't Know*, ACL 2018; Möller et al., *COVID-QA: A
    Question Answering Dataset for COVID-19*, 2020.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value

from examples.tasks.base import Splits, Task, find_file, read_json, stratified_split
from examples.tasks.metrics import score_answers, score_doubted_answers

# Copies that must be small have the file's first articles under this name.
_HEAD = "train-v1.1.head.json"
_TEXT = Value("string")
FEATURES = Features(
    {
        **dict.fromkeys(("id", "question", "context"), _TEXT),
        "answers": {"text": List(_TEXT), "answer_start": List(Value("int32"))},
    }
)

logger = logging.getLogger(__name__)


def read_articles(path: Path) -> list[list[dict[str, Any]]]:
    """Read the questions of each article of a file, each with its answers."""
    try:
        return [
            [
                {
                    "id": str(entry["id"]),
                    "question": entry["question"],
                    "context": paragraph["context"],
                    "answers": {
                        key: [answer[key] for answer in entry.get("answers", ())]
                        for key in ("text", "answer_start")
                    },
                }
                for paragraph in article["paragraphs"]
                for entry in paragraph["qas"]
            ]
            for article in read_json(path)["data"]
        ]
    except (AttributeError, KeyError, TypeError) as error:
        got = f"no {error}" if isinstance(error, KeyError) else "something else"
        raise ValueError(f"{path} must have the layout of SQuAD, got {got}") from None


def read_squad_file(path: Path, *, may_be_unanswerable: bool) -> Dataset:
    """Read a file whose answers stand where it says."""
    rows = [row for article in read_articles(path) for row in article]
    for row in rows:
        texts, starts = row["answers"]["text"], row["answers"]["answer_start"]
        if not texts and not may_be_unanswerable:
            raise ValueError(f"{path}: question {row['id']} must have an answer, got none")
        for text, start in zip(texts, starts, strict=True):
            if start < 0 or not row["context"].startswith(text, start):
                raise ValueError(
                    f"{path}: question {row['id']} must have the answer {text!r} at character "
                    f"{start} of its context, got another text there"
                )
    return Dataset.from_list(rows, features=FEATURES)


def read_squad(data_dir: Path | None, names: Sequence[str], *, version: str) -> Splits:
    """Read a version's files."""
    splits: Splits = {}
    for name in names:
        stems = [f"{'train' if name == 'train' else 'dev'}-v{version}.json"]
        stems += [_HEAD] if stems[0].startswith("train-v1.1") else []
        path = find_file(data_dir, "squad", *stems)
        splits[name] = read_squad_file(path, may_be_unanswerable=version == "2.0")
        if path.name.startswith(_HEAD):
            message = "%s is only the beginning of the file to train on: %d questions"
            logger.warning(message, path, len(splits[name]))
    return splits


def read_covidqa(
    data_dir: Path | None,
    names: Sequence[str],
    *,
    characters: int | None = None,
    distance: int = 0,
) -> Splits:
    """Read COVID-QA: questions about articles of 3,600 words on average.

    Of the 98 articles of the early release 15 % are drawn for validation and as many for the test,
    always the same, with all their questions. Of its 1,380 answers 234 do not stand where the file
    says. One whose text is in the article once is taken to be meant there, which mends 227; the 7
    questions whose answers are there several times are left out, and a warning says so.

    With ``characters``, each question has a passage of that length, in which its answer begins
    ``distance`` characters in or later; how far, is drawn. Questions are left out whose answer has
    less in front of it in the article, does not fit behind so much, or stands nearer, too.
    """
    path = find_file(data_dir, "covidqa", "200423_covidQA.json", "COVID-QA.json")
    every = read_articles(path)
    articles = [[row for row in map(_mended, rows) if row["answers"]["text"]] for rows in every]
    if characters is not None:
        cut = partial(_passage, characters=characters, distance=distance)
        articles = [
            [
                passage | {"article": number}
                for passage in map(cut, rows)
                if _is_far(passage, distance)
            ]
            for number, rows in enumerate(articles)
        ]
    asked, kept = (sum(map(len, found)) for found in (every, articles))
    if kept < asked:
        logger.warning("%s: left out %d of %d questions", path, asked - kept, asked)
    rows = stratified_split([0] * len(articles), {"validation": 0.15, "test": 0.15})
    return {
        name: Dataset.from_list([row for number in rows[name] for row in articles[number]])
        for name in names
    }


def _mended(row: dict[str, Any]) -> dict[str, Any]:
    """A question with its answers where they are: as the file says, or the only place it can be."""
    context, answers = row["context"], row["answers"]
    found = []
    for text, start in zip(answers["text"], answers["answer_start"], strict=True):
        if start >= 0 and context.startswith(text, start):
            found.append((text, start))
        elif context.count(text) == 1:
            found.append((text, context.find(text)))
    texts, starts = [text for text, _ in found], [start for _, start in found]
    return row | {"answers": {"text": texts, "answer_start": starts}}


def _passage(row: dict[str, Any], characters: int, distance: int) -> dict[str, Any]:
    """Cut a passage around the first answer of a question, at a place that is drawn."""
    text, start = row["answers"]["text"][0], row["answers"]["answer_start"][0]
    farthest = max(0, min(start, characters - len(text)))
    nearest = min(distance, farthest)
    draw = random.Random(f"far {row['id']}")  # a text is hashed the same way everywhere
    first = start - draw.randint(nearest, farthest)
    answers = {"text": [text], "answer_start": [start - first]}
    return row | {"context": row["context"][first : first + characters], "answers": answers}


def _is_far(row: dict[str, Any], distance: int) -> bool:
    """Whether an answer is in its passage, and its text nowhere before the distance."""
    text, start = row["answers"]["text"][0], row["answers"]["answer_start"][0]
    inside: bool = row["context"].startswith(text, start)
    return inside and distance <= row["context"].find(text) <= start


def _covidqa(name: str, source: str, **settings: int) -> Task:
    read = partial(read_covidqa, **settings)
    splits = ("train", "validation", "test")
    metrics = ("f1", "exact_match")
    return Task(name, "question_answering", read, score_answers, metrics, splits, source=source)


_F1, _BERTS = ("f1", "exact_match"), 30  # tokens of an answer
QUESTIONS = (
    Task(
        *("squad", "question_answering", partial(read_squad, version="1.1"), score_answers, _F1),
        source="context",
        longest_answer=_BERTS,
    ),
    Task(
        *("squad2", "question_answering", partial(read_squad, version="2.0")),
        *(score_doubted_answers, (*_F1, "best_f1", "best_exact_match")),
        source="context",
        longest_answer=_BERTS,
    ),
    _covidqa("covidqa", "context"),
    # 410 tokens or more of BERT's uncased vocabulary lie between question and answer, which a
    # window of 64 does not cross in six layers; passages of one article overlap.
    _covidqa("covidqafar", "article", characters=6400, distance=2200),
    _covidqa("covidqafarhalf", "article", characters=3000, distance=1100),
)
