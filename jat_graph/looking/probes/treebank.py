"""Sentences with their trees, from Universal Dependencies, and trees as distances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jat_graph.core.extras import import_extra
from jat_graph.core.files import open_text
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.findings import Floats

Edges: TypeAlias = frozenset[tuple[int, int]]  # the earlier word first

ROOT = -1  # the head of a sentence's root
SHOWN = ("form", "upos", "deprel")
COLUMNS = ("id", *SHOWN, "head")  # that a word must have
EDGE, SIBLINGS, SAME_TAG = "head and dependent", "siblings", "one part of speech"


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
        sparse, csgraph = import_extra("scipy.sparse"), import_extra("scipy.sparse.csgraph")
        edges = np.array(self.edges, int).reshape(-1, 2)
        graph = sparse.coo_array((np.ones(len(edges)), edges.T), shape=(len(self), len(self)))
        found: Floats = csgraph.shortest_path(graph.tocsr(), directed=False, unweighted=True)
        return found


def read_treebank(
    path: str | Path,
    *,
    split: str | None = None,
    most: int | None = None,
    lengths: range | None = None,
) -> list[Sentence]:
    """Read sentences in CoNLL-U, plain or packed by gzip.

    Ranges of words as ``2-3`` and empty words as ``4.1`` are left out: trees are over the others.

    Args:
        path: The file, or with ``split`` a treebank's folder.
        split: Which file of the folder to read: for ``"dev"`` the one that ends with
            ``-dev.conllu`` or ``-dev.conllu.gz``. (default: None, ``path`` is a file)
        most: How many sentences to keep at most, from the beginning. (default: None, all)
        lengths: Numbers of words that a sentence may have. (default: None, any)

    Returns:
        The sentences, in their order.

    Raises:
        ValueError: If there is no one such file, it is not CoNLL-U, a tree is broken, or none fits.
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


def _sentences(path: Path) -> Iterator[Sentence]:
    for where, tokens in _token_lists(path):
        for token in tokens:
            lacking = next((name for name in COLUMNS if name not in token), None)
            if lacking is not None:
                got = f"got {' '.join(map(str, token.values()))!r}"
                raise ValueError(f"{where}: each word must have the column {lacking}, {got}")
        words = [token for token in tokens if isinstance(token["id"], int)]
        headless = next((word for word in words if word["head"] is None), None)
        if headless is not None:
            wanted = "each word must have a head"
            raise ValueError(f"{where}: {wanted}, got none for {headless['form']!r}")
        heads = tuple(word["head"] - 1 for word in words)
        check_tree(heads, where)
        forms, tags, relations = (tuple(w[name] or "_" for w in words) for name in SHOWN)
        yield Sentence(forms, tags, heads, relations)


def _token_lists(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield what conllu reads of each sentence, and where it stands."""
    conllu = import_extra("conllu")
    number = 0
    file = open_text(path)
    try:
        # Comments alone, as those that begin a document, are no sentence.
        for number, tokens in enumerate(filter(len, conllu.parse_incr(file)), start=1):
            yield f"{path}, sentence {number}", tokens
    # The latter of a number that is too long.
    except (conllu.exceptions.ParseException, ValueError) as error:
        raise ValueError(f"{path} must be CoNLL-U, after sentence {number}: {error}") from None


def check_tree(heads: Sequence[int], where: str) -> None:
    """Refuse heads that are no tree with one root: indices from 0, -1 for the root."""
    roots = sum(head == ROOT for head in heads)
    if roots != 1:
        raise ValueError(f"{where}: a tree must have one root, got {roots}")
    outside = next((head + 1 for head in heads if not ROOT <= head < len(heads)), None)
    if outside is not None:
        raise ValueError(f"{where}: heads must be words 1 to {len(heads)}, got {outside}")
    try:
        TopologicalSorter({word: [head] for word, head in enumerate(heads)}).prepare()
    except CycleError as error:
        word = min(error.args[1]) + 1
        raise ValueError(f"{where}: a tree must have no cycle, got one at word {word}") from None


def frequent_relations(sentences: Sequence[Sentence]) -> dict[str, int]:
    """Return relations of words to heads and how often there are, the most frequent first."""
    names = sorted(own.relations[word] for own in sentences for word, _ in own.edges)
    return dict(Counter(names).most_common())


def related_pairs(sentences: Sequence[Sentence]) -> pd.DataFrame:
    """Return all pairs of words of one sentence, a row each, and how the two are related."""
    names = ("row", "one", "other", EDGE, SIBLINGS, SAME_TAG, "relation")
    found = []
    for row, own in enumerate(sentences):
        heads, tags, relations = map(np.array, (own.heads, own.tags, own.relations))
        one, other = np.triu_indices(len(own), 1)
        below, above = heads[one] == other, heads[other] == one  # which of the two is the head
        siblings = (heads[one] == heads[other]) & (heads[one] != ROOT)
        relation = relations[np.where(below, one, other)]  # if there is one
        rows = np.full(len(one), row)
        same_tag = tags[one] == tags[other]
        found.append((rows, one, other, below | above, siblings, same_tag, relation))
    columns = map(np.concatenate, zip(*found, strict=True))
    return pd.DataFrame(dict(zip(names, columns, strict=True)))
