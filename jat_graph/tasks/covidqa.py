"""COVID-QA: questions about whole scientific articles, in SQuAD's layout."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.base import QuestionTask
from jat_graph.tasks.sources import find_file, plain_or_gzipped, stratified_split
from jat_graph.tasks.squad_files import check_answers, check_question, read_articles

if TYPE_CHECKING:
    from datasets import Dataset

_SHARES = {"validation": 0.15, "test": 0.15}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class CovidQATask(QuestionTask):
    """Find the answers to questions in articles of 3,600 words on average.

    There are no splits. Of the 98 articles of the early release 15 % are drawn for validation and
    as many for the test, always the same, with all their questions: no article is in two splits.

    Of its 1,380 answers 234 do not stand where the file says. An answer whose text is in the
    article once is taken to be meant there, which mends 227; the 7 questions whose answers are
    there several times are left out, and a warning says so.

    Reference:
        Möller et al., *COVID-QA: A Question Answering Dataset for COVID-19*, 2020.
    """

    name: str = "covidqa"
    splits: tuple[str, ...] = ("train", "validation", "test")

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read the articles, and draw which are of which split."""
        from datasets import Dataset

        names = plain_or_gzipped("200423_covidQA.json", "COVID-QA.json")
        path = find_file(data_dir, self.name, ("covidqa",), names)
        articles = self._passages(path, _read_articles(path))
        rows = stratified_split([0] * len(articles), _SHARES)
        return {
            split: Dataset.from_list([row for number in rows[split] for row in articles[number]])
            for split in splits
        }

    def _passages(
        self, path: Path, articles: list[list[dict[str, Any]]]
    ) -> list[list[dict[str, Any]]]:
        """The questions of each article, with the part of it that they are asked about: all."""
        return articles


@dataclass(frozen=True, kw_only=True)
class FarCovidQATask(CovidQATask):
    """Find answers that are far from their questions, in passages of the same articles.

    A question has a passage of its own, of ``characters`` characters of the article or what is left
    of it. Models read the question first, and its answer begins at least ``distance`` characters
    into the passage; how far, is drawn once for each question. Articles are of the same splits.
    Questions are left out whose answer has less in front of it in the article, does not fit behind
    so much, or stands nearer, too; a warning says how many.

    Of several right answers the first one counts.

    By default 410 or more tokens of BERT's uncased vocabulary lie between, which a window of 64
    does not cross in six layers: each reaches 63 tokens. Passage and question have up to 2,048.

    Args:
        characters: Length of a passage. (default: 6,400)
        distance: Characters between its beginning and the answer, at least. (default: 2,200)
    """

    name: str = "covidqafar"
    source: str | None = "article"  # passages of one article overlap
    characters: int = 6400
    distance: int = 2200

    def _passages(
        self, path: Path, articles: list[list[dict[str, Any]]]
    ) -> list[list[dict[str, Any]]]:
        """Cut a passage for each question, and leave out those whose answer is near."""
        cut = [
            [self._passage(row) | {"article": number} for row in rows]
            for number, rows in enumerate(articles)
        ]
        far = [[row for row in rows if self._is_far(row)] for rows in cut]
        kept, every = sum(map(len, far)), sum(map(len, articles))
        if not kept:
            wanted = f"answers that begin {self.distance} characters into an article"
            raise ValueError(f"{path} must have {wanted}, got none")
        if kept < every:
            logger.warning(
                "%s: left out %d of %d questions whose answers are not far",
                path,
                every - kept,
                every,
            )
        return far

    def _passage(self, row: dict[str, Any]) -> dict[str, Any]:
        """Cut a passage around the first answer of a question, at a place that is drawn."""
        text, start = row["answers"]["text"][0], row["answers"]["answer_start"][0]
        farthest = max(0, min(start, self.characters - len(text)))
        nearest = min(self.distance, farthest)
        draw = random.Random(f"far {row['id']}")  # a text is hashed the same way everywhere
        first = start - draw.randint(nearest, farthest)
        passage = row["context"][first : first + self.characters]
        return row | {
            "context": passage,
            "answers": {"text": [text], "answer_start": [start - first]},
        }

    def _is_far(self, row: dict[str, Any]) -> bool:
        """Whether an answer is in its passage, and its text nowhere before the distance."""
        text, start = row["answers"]["text"][0], row["answers"]["answer_start"][0]
        found = row["context"].find(text)
        inside = bool(row["context"].startswith(text, start))
        return inside and self.distance <= found <= start


def _read_articles(path: Path) -> list[list[dict[str, Any]]]:
    """Read the questions of each article, and mend or leave out those with a wrong place."""
    articles = [
        [_read_question(path, context, entry) for context, entry in questions]
        for questions in read_articles(path)
    ]
    if not any(articles):
        raise ValueError(f"{path} must hold questions, got none")
    kept = [[row for row in rows if row["answers"]["text"]] for rows in articles]
    left_out = sum(map(len, articles)) - sum(map(len, kept))
    if left_out:
        logger.warning(
            "%s: left out %d questions whose answers are not where the file says, nor elsewhere "
            "in the article just once",
            path,
            left_out,
        )
    return kept


def _read_question(path: Path, context: Any, entry: dict[str, Any]) -> dict[str, Any]:
    check_question(path, context, entry)
    answers = check_answers(path, entry)
    places = [_place(context, answer) for answer in answers]
    found = [(a["text"], p) for a, p in zip(answers, places, strict=True) if p is not None]
    return {
        "id": entry["id"],
        "question": entry["question"],
        "context": context,
        "answers": {"text": [text for text, _ in found], "answer_start": [p for _, p in found]},
    }


def _place(context: str, answer: dict[str, Any]) -> int | None:
    """Where an answer begins: where the file says, or the only other place it can be."""
    text, start = answer["text"], answer["answer_start"]
    if start >= 0 and context.startswith(text, start):
        return int(start)
    return context.find(text) if context.count(text) == 1 else None
