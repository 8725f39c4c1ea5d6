"""The Brown corpus: whole texts of 2,000 words, and which of 15 genres each is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

from jat_graph.tasks.base import ClassificationTask
from jat_graph.tasks.sources import find_file, reading, stratified_split

if TYPE_CHECKING:
    from datasets import Dataset

GENRES = (
    "adventure",
    "belles_lettres",
    "editorial",
    "fiction",
    "government",
    "hobbies",
    "humor",
    "learned",
    "lore",
    "mystery",
    "news",
    "religion",
    "reviews",
    "romance",
    "science_fiction",
)
_SHARES = {"validation": 0.2, "test": 0.2}

_DOUBLED = frozenset("?!;:,()")  # the corpus has "? ?" for nearly every "?"
_OPENING = frozenset(("(", "``", "`"))
_CLOSING = frozenset((",", ".", ";", ":", "?", "!", ")", "''"))
_EITHER = "'"  # opens a quotation, or closes it


def brown_text(tagged: str) -> str:
    """Turn a tagged text of the corpus into one to read.

    Tags go, the sentences of a paragraph stand in one line, and a blank line parts paragraphs.
    Quotation marks are ``"``, punctuation follows its word without a space, and what the corpus
    doubles (``? ?``) stands once.
    """
    paragraphs = (_words(block) for block in re.split(r"\n\s*\n", tagged))
    return "\n\n".join(_join(words) for words in paragraphs if words)


def _words(block: str) -> list[str]:
    return [word for word, _ in _tagged(block)]


def _tagged(block: str) -> list[tuple[str, str]]:
    pairs = []
    for pair in block.split():
        word, slash, tag = pair.rpartition("/")
        if not (word and slash and tag):
            raise ValueError(f"each word must have a tag behind a slash, got {pair!r}")
        pairs.append((word, tag))
    return pairs


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


@dataclass(frozen=True, kw_only=True)
class BrownTask(ClassificationTask):
    """Tell the genre of a text of 2,000 words: news, religion, romance and twelve others.

    The corpus has no splits. A fifth of each genre, rounded, is drawn for validation and another
    for the test, the same in every run; 300, 100 and 100 texts. Genres are of unequal size, 80 to
    6, so that macro F1 says more than accuracy about the small ones.

    Reference:
        Francis and Kučera, *Brown Corpus Manual*, 1979; the version of NLTK's data.
    """

    name: str = "brown"
    text_columns: tuple[str, ...] = ("text",)
    labels: tuple[str, ...] | None = GENRES
    splits: tuple[str, ...] = ("train", "validation", "test")
    primary_metric: str = "accuracy"
    other_metrics: tuple[str, ...] = ("macro_f1",)

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read ``brown.zip``."""
        from datasets import Dataset

        path = find_file(data_dir, self.name, ("nltk", "corpora"), ("brown.zip",))
        with reading(path), ZipFile(path) as archive:
            genres = _read_genres(path, archive)
            names, labels = list(genres), [GENRES.index(genre) for genre in genres.values()]
            rows = stratified_split(labels, _SHARES)
            return {
                split: Dataset.from_dict(
                    {
                        "text": [_read_text(path, archive, names[row]) for row in rows[split]],
                        "label": [labels[row] for row in rows[split]],
                    }
                )
                for split in splits
            }


def tagged_sentences(path: Path) -> Iterator[list[tuple[str, str]]]:
    """Yield the words of each sentence with their tags, as the corpus writes both."""
    with reading(path), ZipFile(path) as archive:
        for name in _read_genres(path, archive):
            for line in _read_member(path, archive, name).splitlines():
                try:
                    pairs = _tagged(line)
                except ValueError as error:
                    raise ValueError(f"{path}, {name}: {error}") from None
                if pairs:
                    yield pairs


def _read_genres(path: Path, archive: ZipFile) -> dict[str, str]:
    """Read which genre each text is of."""
    genres = {}
    for number, line in enumerate(_read_member(path, archive, "cats.txt").splitlines(), start=1):
        name, _, genre = line.partition(" ")
        if genre not in GENRES:
            raise ValueError(
                f"{path}, cats.txt, line {number}: the genre must be one of {', '.join(GENRES)}, "
                f"got {genre!r}"
            )
        genres[name] = genre
    if not genres:
        raise ValueError(f"{path}, cats.txt must name texts, got none")
    return genres


def _read_text(path: Path, archive: ZipFile, name: str) -> str:
    try:
        text = brown_text(_read_member(path, archive, name))
    except ValueError as error:
        raise ValueError(f"{path}, {name}: {error}") from None
    if not text:
        raise ValueError(f"{path}, {name} must have words, got none")
    return text


def _read_member(path: Path, archive: ZipFile, name: str) -> str:
    try:
        return archive.read(f"brown/{name}").decode("utf-8")
    except KeyError:
        raise FileNotFoundError(f"{path} must hold brown/{name}: no such file inside") from None
