"""Questions about texts in SQuAD's layout: SQuAD 1.1 and 2.0, and COVID-QA's articles.

Reference:
    Rajpurkar et al., *SQuAD: 100,000+ Questions for Machine Comprehension of Text*, EMNLP 2016;
    Rajpurkar, Jia and Liang, *Know What You Don't Know*, ACL 2018; Möller et al., *COVID-QA: A
    Question Answering Dataset for COVID-19*, 2020.
"""

from __future__ import annotations

import logging
import random
from functools import partial
from operator import index
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value

from examples.tasks.base import Splits, Task, find_file, reading, stratified_split
from examples.tasks.metrics import score_answers, score_doubted_answers
from jat_graph.core.files import parse_json, read_text

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
    content = parse_json(read_text(path), path)
    articles = []
    with reading(path, "SQuAD"):
        for article in content["data"]:
            asked = [(p["context"], entry) for p in article["paragraphs"] for entry in p["qas"]]
            articles.append([_row(context, entry) for context, entry in asked])
    return articles


def _row(context: str, entry: dict[str, Any]) -> dict[str, Any]:
    """A question; where the file says that there are no answers, there must be none."""
    row = {"id": str(entry["id"]), "question": entry["question"], "context": context}
    answers = entry.get("answers", ())
    impossible = entry.get("is_impossible", not answers)
    if impossible is not (not answers):
        got = f"{len(answers)} answers and is_impossible {impossible!r}"
        raise ValueError(f"{got} for question {row['id']}")
    texts = [str(answer["text"]) for answer in answers]
    starts = [index(answer["answer_start"]) for answer in answers]  # refuses floats
    return row | {"answers": {"text": texts, "answer_start": starts}}


def read_squad(data_dir: Path | None, split: str, *, version: str) -> Dataset:
    """Read a version's files, whose answers stand where they say."""
    stems = [f"{'train' if split == 'train' else 'dev'}-v{version}.json"]
    stems += [_HEAD] if stems[0].startswith("train-v1.1") else []
    path = find_file(data_dir, "squad", *stems)
    rows = [row for article in read_articles(path) for row in article]
    for row in rows:
        texts = row["answers"]["text"]
        if not texts and version != "2.0":
            raise ValueError(f"{path}: question {row['id']} must have an answer, got none")
        if _mended(row)["answers"] != row["answers"]:
            raise ValueError(f"{path}: question {row['id']} must have {texts} where it says")
    if path.name.startswith(_HEAD):
        message = "%s is only the beginning of the file to train on: %d questions"
        logger.warning(message, path, len(rows))
    return Dataset.from_list(rows, features=FEATURES)


def read_covidqa(
    data_dir: Path | None, _: str, *, characters: int | None = None, distance: int = 0
) -> Splits:
    """Read COVID-QA: of its 98 articles 15 % are drawn for each other split, with their questions.

    Of its 1,380 answers 234 do not stand where the file says. One whose text is in the article once
    is taken to be meant there, which mends 227; 7 questions are left out. With ``characters`` each
    question has a passage of that length, in which its answer begins ``distance`` characters in or
    later; how far, is drawn. Questions without such a passage are left out.
    """
    path = find_file(data_dir, "covidqa", "200423_covidQA.json", "COVID-QA.json")
    every = read_articles(path)
    articles = []
    for number, rows in enumerate(every):
        found = [row for row in map(_mended, rows) if row["answers"]["text"]]
        if characters is not None:
            cut = (_passage(row, characters, distance) for row in found)
            found = [passage | {"article": number} for passage in cut if passage is not None]
        articles.append(found)
    asked, kept = (sum(map(len, found)) for found in (every, articles))
    if kept < asked:
        logger.warning("%s: left out %d of %d questions", path, asked - kept, asked)
    rows = stratified_split([0] * len(articles), {"validation": 0.15, "test": 0.15})
    return {
        name: Dataset.from_list([row for number in numbers for row in articles[number]])
        for name, numbers in rows.items()
    }


def _mended(row: dict[str, Any]) -> dict[str, Any]:
    """A question with its answers where they are: as the file says, or the only place it can be."""
    context, answers = row["context"], row["answers"]
    texts, starts = [], []
    for text, start in zip(answers["text"], answers["answer_start"], strict=True):
        is_there = start >= 0 and context.startswith(text, start)
        if is_there or context.count(text) == 1:
            texts.append(text)
            starts.append(start if is_there else context.find(text))
    return row | {"answers": {"text": texts, "answer_start": starts}}


def _passage(row: dict[str, Any], characters: int, distance: int) -> dict[str, Any] | None:
    """Cut a passage around a first answer; None if it does not fit, or stands nearer, too."""
    text, start = row["answers"]["text"][0], row["answers"]["answer_start"][0]
    farthest = max(0, min(start, characters - len(text)))
    draw = random.Random(f"far {row['id']}")  # a text is hashed the same way everywhere
    own = draw.randint(min(distance, farthest), farthest)
    passage = row["context"][start - own : start - own + characters]
    if not (passage.startswith(text, own) and distance <= passage.find(text)):
        return None
    return row | {"context": passage, "answers": {"text": [text], "answer_start": [own]}}


def _task(name: str, read: Any, source: str = "context", **settings: Any) -> Task:
    known = {"score": score_answers, "metrics": ("f1", "exact_match"), **settings}
    return Task(name, "question_answering", read, source=source, **known)


_SHORT = {"longest_answer": 30}  # tokens, as BERT's authors have it
_DOUBTED: dict[str, Any] = {"score": score_doubted_answers}
_DOUBTED |= {"metrics": ("f1", "exact_match", "best_f1", "best_exact_match")}
_DRAWN = {"splits": ("train", "validation", "test")}
# 410 tokens or more of BERT's uncased vocabulary lie between question and answer, which a window of
# 64 does not cross in six layers; passages of one article overlap.
_FAR = partial(read_covidqa, characters=6400, distance=2200)
_HALF_AS_FAR = partial(read_covidqa, characters=3000, distance=1100)
QUESTIONS = (
    _task("squad", partial(read_squad, version="1.1"), **_SHORT),
    _task("squad2", partial(read_squad, version="2.0"), **_SHORT, **_DOUBTED),
    _task("covidqa", read_covidqa, **_DRAWN),
    _task("covidqafar", _FAR, "article", **_DRAWN),
    _task("covidqafarhalf", _HALF_AS_FAR, "article", **_DRAWN),
)
