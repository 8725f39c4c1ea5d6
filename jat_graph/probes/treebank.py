"""Sentences with their trees, from treebanks of Universal Dependencies."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO, cast

ROOT = -1  # the head of a sentence's root


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence and its dependency tree.

    Args:
        words: Its words, as the treebank cuts them.
        tags: Their parts of speech, of the 17 of Universal Dependencies.
        heads: The index of each word's head, from 0; -1 for the root.
        relations: Each word's relation to its head, subtypes too: ``nsubj:pass``.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]

    def __len__(self) -> int:
        """Its words."""
        return len(self.words)

    @cached_property
    def root(self) -> int:
        """The index of the root."""
        return self.heads.index(ROOT)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Word and head, of all words but the root."""
        return [(word, head) for word, head in enumerate(self.heads) if head != ROOT]


def read_treebank(
    path: str | Path,
    *,
    split: str | None = None,
    most: int | None = None,
    lengths: range | None = None,
) -> list[Sentence]:
    """Read sentences in CoNLL-U, plain or packed by gzip.

    Ranges of words as ``2-3`` and empty words as ``4.1`` are left out: trees are over the words
    between them.

    Args:
        path: The file, or with ``split`` a treebank's folder.
        split: Which file of the folder to read: the one that ends with ``-dev.conllu``, plain or
            with ``.gz``, for ``"dev"``. (default: None, ``path`` is a file)
        most: How many sentences to keep at most, from the beginning. (default: None, all)
        lengths: Numbers of words that a sentence may have. (default: None, any)

    Returns:
        The sentences, in their order.

    Raises:
        ValueError: If there is not one such file, it is not CoNLL-U, a tree is broken, or nothing
            is left.
        OSError: If the file cannot be read.
    """
    file = Path(path)
    if split is not None:
        if not file.is_dir():
            raise FileNotFoundError(f"treebank {file} must be a folder, got none")
        files = [own for end in ("", ".gz") for own in file.glob(f"*-{split}.conllu{end}")]
        if len(files) != 1:
            wanted = f"one file *-{split}.conllu or .gz"
            raise ValueError(f"treebank {file} must hold {wanted}, got {len(files)}")
        file = files[0]
    found: list[Sentence] = []
    for sentence in _sentences(file):
        if lengths is None or len(sentence) in lengths:
            found.append(sentence)
        if len(found) == most:
            break
    if not found:
        raise ValueError(f"{file} must hold a sentence of the wanted lengths, got none")
    return found


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Open a file of UTF-8 text, plain or packed by gzip; what is wrong with it is one line."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig") as file:
            yield cast(TextIO, file)
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is cut off or damaged: {error}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8, got a bad byte at {error.start}") from None


def _sentences(path: Path) -> Iterator[Sentence]:
    from conllu import parse_incr
    from conllu.exceptions import ParseException

    number = 0
    try:
        with open_text(path) as file:
            for number, tokens in enumerate(parse_incr(file), start=1):
                words = [token for token in tokens if isinstance(token["id"], int)]
                where = f"{path}, sentence {number}"
                for word in words:
                    if word["head"] is None:
                        wanted = "each word must have a head"
                        raise ValueError(f"{where}: {wanted}, got none for {word['form']!r}")
                heads = tuple(word["head"] - 1 for word in words)
                check_tree(heads, where)
                tags, relations = (
                    tuple(word[field] or "_" for word in words) for field in ("upos", "deprel")
                )
                yield Sentence(tuple(word["form"] for word in words), tags, heads, relations)
    except ParseException as error:
        raise ValueError(f"{path} must be CoNLL-U, after sentence {number}: {error}") from None


def check_tree(heads: Sequence[int], where: str) -> None:
    """Refuse heads that are no tree with one root: indices from 0, -1 for the root."""
    roots = sum(head == ROOT for head in heads)
    if roots != 1:
        raise ValueError(f"{where}: a tree must have one root, got {roots}")
    outside = next((head + 1 for head in heads if not ROOT <= head < len(heads)), None)
    if outside is not None:
        raise ValueError(f"{where}: heads must be words 1 to {len(heads)}, got {outside}")
    for word in range(len(heads)):
        above, steps = word, 0
        while above != ROOT and steps <= len(heads):
            above, steps = heads[above], steps + 1
        if above != ROOT:
            raise ValueError(f"{where}: a tree must have no circle, got one at word {word + 1}")


def check_sentences(**parts: Any) -> None:
    """Refuse what are no sequences of sentences with trees."""
    for name, sentences in parts.items():
        if not isinstance(sentences, Sequence) or not sentences:
            raise ValueError(f"{name} must be one or more sentences, got {sentences!r}")
        wrong = next((entry for entry in sentences if not isinstance(entry, Sentence)), None)
        if wrong is not None:
            raise ValueError(f"{name} must hold sentences of a treebank, got {wrong!r}")


def frequent_relations(sentences: Sequence[Sentence]) -> dict[str, int]:
    """Return relations of words to heads and how often there are, the most frequent first."""
    counts = Counter(
        sentence.relations[word] for sentence in sentences for word, _ in sentence.edges
    )
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))
