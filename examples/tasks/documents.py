"""Whole documents: Brown, IMDB and Hyperpartisan to classify, QMSum's meetings to choose from.

Reference:
    Francis and Kučera, *Brown Corpus Manual*, 1979; Maas et al., *Learning Word Vectors for
    Sentiment Analysis*, ACL 2011; Kiesel et al., *SemEval-2019 Task 4: Hyperpartisan News
    Detection*, 2019; Zhong et al., *QMSum*, NAACL 2021.
"""

from __future__ import annotations

import html
import logging
import random
import re
import tarfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from examples.tasks.base import (
    Splits,
    Task,
    find_file,
    label_rows,
    read_lines,
    reading,
    stratified_split,
)
from examples.tasks.metrics import score_classes
from jat_graph.core.files import parse_xml, read_text

GENRES = tuple(
    "adventure belles_lettres editorial fiction government hobbies humor learned lore mystery news "
    "religion reviews romance science_fiction".split()
)
_DOUBLED = frozenset("?!;:,()")  # the corpus has "? ?" for nearly every "?"
_OPENING = frozenset(("(", "``", "`"))
_CLOSING = frozenset((",", ".", ";", ":", "?", "!", ")", "''"))
_EITHER = "'"  # opens a quotation, or closes it
_SIDES = ("neg", "pos")
_REVIEW = re.compile(r"(?P<part>train|test)/(?P<side>neg|pos)/\d+_\d+\.txt$")
_BORDER = "\f"  # of a paragraph; XML allows no such character
_MARKS = re.compile(r"\{\w+\}\s*")  # {vocalsound}, {disfmarker}: up to half of what is said

logger = logging.getLogger(__name__)


class Asked(NamedTuple):
    """What is asked of parts of a meeting: first and last turns of each, and what was answered."""

    query: str
    spans: list[tuple[int, int]]
    answer: str


def read_brown(data_dir: Path | None, _: str) -> Splits:
    """Read 2,000 words a text, each of one of 15 genres; a fifth is drawn for each other split."""
    path = find_file(data_dir, "nltk", "brown.zip")
    with reading(path, "NLTK's Brown corpus"), zipfile.ZipFile(path) as archive:
        lines = archive.read("brown/cats.txt").decode().splitlines()
        genres = dict(line.split() for line in lines)
        rows = []
        for name, genre in genres.items():
            text = brown_text(archive.read(f"brown/{name}").decode())
            rows.append({"text": text, "label": GENRES.index(genre)})
    return _drawn(rows, GENRES, 0.2)


def brown_text(tagged: str) -> str:
    """Turn a tagged text into one to read: a line a paragraph, `"`, and "?" for "? ?"."""
    blocks = re.split(r"\n\s*\n", tagged)
    paragraphs = ([pair.rpartition("/")[0] for pair in block.split()] for block in blocks)
    return "\n\n".join(_join(words) for words in paragraphs if words)


def _join(words: list[str]) -> str:
    """Set spaces as readers expect them."""
    text, glued, quoted, last = "", True, False, ""
    for word in words:
        if word == last and word in _DOUBLED:
            last = ""
            continue
        quoted ^= word == _EITHER
        closing = word in _CLOSING or (word == _EITHER and not quoted)
        mark = word.replace("``", '"').replace("''", '"')
        text += mark if glued or closing else f" {mark}"
        glued, last = word in _OPENING or (word == _EITHER and quoted), word
    return text


def read_imdb(data_dir: Path | None, split: str) -> Splits:
    """Read film reviews, for or against; a tenth of those to train on is drawn to validate on."""
    part = "test" if split == "test" else "train"
    archives = ("aclImdb_v1.tar.gz", "aclImdb_subset.tar.gz")
    path = find_file(data_dir, "imdb", "train", "aclImdb/train", *archives)
    with reading(path, "the archive of IMDB"):
        # In one order whatever the archive's, so that what is drawn is the same.
        reviews = sorted(
            (match[0], content.decode(), _SIDES.index(match["side"]))
            for name, content in _files_beside(path)
            if (match := _REVIEW.search(name)) and match["part"] == part
        )
    rows = [{"text": text, "label": side} for _, text, side in reviews]
    every = label_rows(rows, ("negative", "positive"))
    if part == "test":
        return {"test": every}
    indices = stratified_split([*every["label"]], {"validation": 0.1})
    return {name: every.select(rows) for name, rows in indices.items()}


def _files_beside(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files beside a folder, or those of an archive, whose links are not followed."""
    if path.is_dir():
        for file in path.parent.glob("*/*/*.txt"):
            yield file.as_posix(), file.read_bytes()
        return
    with tarfile.open(path, "r:gz") as archive:
        for member in filter(tarfile.TarInfo.isfile, archive):
            if (content := archive.extractfile(member)) is not None:
                yield member.name, content.read()


def read_hyperpartisan(data_dir: Path | None, _: str) -> Splits:
    """Read articles without titles: 515, 65 and 65 are drawn, as Longformer's paper has it."""
    found = []
    for stem in ("articles", "ground-truth"):
        path = find_file(data_dir, "hyperpartisan", f"{stem}-training-byarticle-20181122.xml")
        root = parse_xml(read_text(path).encode(), str(path))
        found.append({article.get("id", ""): article for article in root.iter("article")})
    articles, answers = found
    rows = []
    for name, article in articles.items():
        truth = answers[name].get("hyperpartisan") if name in answers else None
        if truth not in ("true", "false"):
            raise ValueError(f"ground-truth must say true or false of {name!r}, got {truth!r}")
        rows.append({"text": article_text(article), "label": int(truth == "true")})
    return _drawn(rows, ("mainstream", "hyperpartisan"), 0.1)


def article_text(article: ElementTree.Element) -> str:
    """The text of an article without its markup, a blank line between paragraphs."""
    for paragraph in article.iter("p"):
        paragraph.text = _BORDER + (paragraph.text or "")
        paragraph.tail = _BORDER + (paragraph.tail or "")
    parts = html.unescape("".join(article.itertext())).split(_BORDER)
    paragraphs = (" ".join(part.split()) for part in parts)
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def read_qmsum(data_dir: Path | None, _: str, *, characters: int, choices: int = 4) -> Splits:
    """Read meetings: which of four passages of one does a question ask for?

    The right one has most of what is marked for it, of its longest span; the others have nothing of
    that, and are drawn once. ``val.jsonl`` alone is read, 35 meetings, of which a fifth is drawn
    for each other split; questions about meetings with too few passages are left out.
    """
    rows, every = [], 0
    for number, (index, turns, asked) in enumerate(read_meetings(data_dir)):
        with reading(index, "QMSum"):
            rows.append([*_questions(number, turns, asked, characters, choices)])
        every += len(asked)
    kept = sum(map(len, rows))
    if kept < every:
        message = "QMSum: left out %d of %d questions, about meetings of fewer than %d passages"
        logger.warning(message, every - kept, every, choices)
    drawn = stratified_split([0] * len(rows), {"validation": 0.2, "test": 0.2})
    labels = [*map(str, range(choices))]
    return {
        name: label_rows([row for number in numbers for row in rows[number]], labels)
        for name, numbers in drawn.items()
    }


def read_meetings(data_dir: Path | None) -> Iterator[tuple[str, list[str], list[Asked]]]:
    """Yield where each meeting of QMSum stands, its turns, and what is asked of parts of it."""
    for index, line in read_lines(find_file(data_dir, "qmsum/ALL", "val.jsonl", "ALL/val.jsonl")):
        with reading(index, "QMSum"):
            said = line["meeting_transcripts"]
            turns = [f"{x['speaker']}: {_MARKS.sub('', x['content']).strip()}" for x in said]
            asked = [
                Asked(
                    query["query"].strip(),
                    [(int(a), int(z)) for a, z in query["relevant_text_span"]],
                    query["answer"].strip(),
                )
                for query in line["specific_query_list"]
            ]
        yield index, turns, asked


def _questions(
    number: int, turns: list[str], asked: list[Asked], characters: int, choices: int
) -> Iterator[dict[str, Any]]:
    """Yield the questions about a meeting that has passages enough."""
    # All passages are as long, or nearly: which one each turn begins in.
    *starts, total = accumulate(map(len, turns), initial=0)
    count = max(1, round(total / characters))
    homes = [start * count // max(1, total) for start in starts]
    passages: dict[int, list[str]] = defaultdict(list)
    for home, turn in zip(homes, turns, strict=True):
        passages[home].append(turn)
    for text, spans, _ in asked:
        shares = [Counter[int]() for _ in spans]  # characters by passage
        for share, (first, last) in zip(shares, spans, strict=True):
            for turn in range(first, last + 1):
                share[homes[turn]] += len(turns[turn])
        (right, _), *_ = max(shares, key=Counter.total).most_common(1)
        others = sorted(passages.keys() - set().union(*shares))
        if len(others) < choices - 1:
            continue
        draw = random.Random(f"{number} {text}")  # a text is hashed the same way everywhere
        chosen = [right, *draw.sample(others, choices - 1)]
        draw.shuffle(chosen)
        yield {
            "meeting": number,
            "text": text,
            "choices": ["\n".join(passages[home]) for home in chosen],
            "label": chosen.index(right),
        }


def _drawn(rows: Sequence[dict[str, Any]], names: Sequence[str], share: float) -> Splits:
    """Draw so large a share for each split beside the one to train on, every class in its share."""
    every = label_rows(rows, names)
    indices = stratified_split([*every["label"]], {"validation": share, "test": share})
    return {split: every.select(own) for split, own in indices.items()}


def _task(name: str, read: Any, metrics: tuple[str, ...], source: str | None = None) -> Task:
    score, splits = partial(score_classes, names=metrics), ("train", "validation", "test")
    return Task(name, "classification", read, score, metrics, splits, source)


DOCUMENTS = (
    _task("brown", read_brown, ("accuracy", "macro_f1")),
    _task("imdb", read_imdb, ("accuracy",)),
    _task("hyperpartisan", read_hyperpartisan, ("f1", "accuracy")),
    _task("qmsum", partial(read_qmsum, characters=6000), ("accuracy",), "meeting"),
    _task("qmsumthird", partial(read_qmsum, characters=2000), ("accuracy",), "meeting"),
)
