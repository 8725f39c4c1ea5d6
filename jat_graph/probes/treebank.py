"""Sentences with their trees, from treebanks of Universal Dependencies."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypeAlias, cast

import numpy as np

from jat_graph.probes.findings import Floats

Edges: TypeAlias = frozenset[tuple[int, int]]  # the earlier word first

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

    @property
    def root(self) -> int:
        """The index of the root."""
        return self.heads.index(ROOT)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """Word and head, of all words but the root."""
        return [(word, head) for word, head in enumerate(self.heads) if head != ROOT]

    @cached_property
    def shown(self) -> list[int]:
        """The indices of all words that are no punctuation."""
        return [index for index, tag in enumerate(self.tags) if tag != "PUNCT"]

    @cached_property
    def shown_edges(self) -> Edges:
        """The edges between words that are no punctuation, the earlier word first."""
        kept = set(self.shown)
        return frozenset((min(edge), max(edge)) for edge in self.edges if kept.issuperset(edge))

    @cached_property
    def distances(self) -> Floats:
        """How many edges are between two words, [n, n]."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import shortest_path

        edges = np.array(self.edges, int).reshape(-1, 2)
        graph = coo_array((np.ones(len(edges)), edges.T), shape=(len(self), len(self)))
        found: Floats = shortest_path(graph.tocsr(), directed=False, unweighted=True)
        return found

    @property
    def depths(self) -> Floats:
        """How many edges are between a word and the root, [n]."""
        found: Floats = self.distances[self.root]
        return found


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
        split: Which file of the folder to read: for ``"dev"`` the one that ends with
            ``-dev.conllu`` or ``-dev.conllu.gz``. (default: None, ``path`` is a file)
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
    fitting = (own for own in _sentences(file) if lengths is None or len(own) in lengths)
    found = list(islice(fitting, most))
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
                names = ("form", "upos", "deprel")
                forms, tags, relations = (tuple(w[name] or "_" for w in words) for name in names)
                yield Sentence(forms, tags, heads, relations)
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
    names = sorted(own.relations[word] for own in sentences for word, _ in own.edges)
    return dict(Counter(names).most_common())
