"""Sentences with their trees, from Universal Dependencies, and trees as distances."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.optim.lr_scheduler import ReduceLROnPlateau

from jat_graph.core.extras import import_extra
from jat_graph.core.files import open_text
from jat_graph.looking.probes.findings import Floats

Edges: TypeAlias = frozenset[tuple[int, int]]  # the earlier word first

ROOT = -1  # the head of a sentence's root
SHOWN = ("form", "upos", "deprel")
COLUMNS = ("id", *SHOWN, "head")  # that a word must have


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
        sparse, csgraph = import_extra("scipy.sparse"), import_extra("scipy.sparse.csgraph")
        edges = np.array(self.edges, int).reshape(-1, 2)
        graph = sparse.coo_array((np.ones(len(edges)), edges.T), shape=(len(self), len(self)))
        found: Floats = csgraph.shortest_path(graph.tocsr(), directed=False, unweighted=True)
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


def _sentences(path: Path) -> Iterator[Sentence]:
    for where, tokens in _token_lists(path):
        for token in tokens:
            lacking = next((name for name in COLUMNS if name not in token), None)
            if lacking is not None:
                got = f"got {' '.join(map(str, token.values()))!r}"
                raise ValueError(f"{where}: each word must have the column {lacking}, {got}")
        words = [token for token in tokens if isinstance(token["id"], int)]
        for word in words:
            if word["head"] is None:
                wanted = "each word must have a head"
                raise ValueError(f"{where}: {wanted}, got none for {word['form']!r}")
        heads = tuple(word["head"] - 1 for word in words)
        check_tree(heads, where)
        forms, tags, relations = (tuple(w[name] or "_" for w in words) for name in SHOWN)
        yield Sentence(forms, tags, heads, relations)


def _token_lists(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield what conllu reads of each sentence, and where it stands."""
    conllu = import_extra("conllu")
    number, file = 0, open_text(path)
    try:
        # Comments alone, as those that begin a document, are no sentence.
        for number, tokens in enumerate(filter(len, conllu.parse_incr(file)), start=1):
            yield f"{path}, sentence {number}", tokens
    except (
        conllu.exceptions.ParseException,
        ValueError,
    ) as error:  # the latter of a number that is too long
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
            raise ValueError(f"{where}: a tree must have no cycle, got one at word {word + 1}")


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


DISTANCE, DEPTH = "distance", "depth"
# As in the source's code.
LEARNING_RATE, DROP, BATCH_SIZE, START = 1e-3, 0.1, 20, 0.05
MARGIN, PATIENCE = 1e-4, 5  # by how much the loss must fall, and for how many epochs it may not


def spanning_tree(distances: Floats, among: Sequence[int]) -> Edges:  # [n, n]
    """Join some words by the edges that are shortest together."""
    minimum_spanning_tree = import_extra("scipy.sparse.csgraph").minimum_spanning_tree
    # A distance of 0 is no edge there. All trees have as many edges: a constant changes none.
    own = distances[np.ix_(among, among)] + 1.0
    rows, columns = minimum_spanning_tree(own).nonzero()
    pairs = zip(rows.tolist(), columns.tolist(), strict=True)
    return frozenset((min(among[i], among[k]), max(among[i], among[k])) for i, k in pairs)


def squared_distances(points: Tensor) -> Tensor:  # [..., L, R] -> [..., L, L]
    """Return ‖p_i − p_k‖² of all pairs; around their mean, where rounding is least."""
    centred = points - points.mean(-2, keepdim=True)
    norms = centred.square().sum(-1)
    found = norms[..., :, None] + norms[..., None, :] - 2 * centred @ centred.mT
    return found.clamp(min=0.0)


class TreeBatch(NamedTuple):
    """Sentences of about one length."""

    states: Tensor  # [B, L, D]
    target: Tensor  # [B, L, L] distances, or [B, L] depths
    weight: Tensor  # 1 over how many pairs or words the sentence has, 0 in padding

    def loss(self, projection: Tensor, kind: str, power: float) -> Tensor:
        """The sum over sentences of the mean absolute error."""
        points = self.states @ projection
        if kind == DEPTH:
            found = points.square().sum(-1)
        else:
            found = squared_distances(points)
            # The slope of a root is kept finite at 0.
            found = found if power == 2 else (found + 1e-6) ** (power / 2)
        return ((found - self.target).abs() * self.weight).sum()


def tree_batches(
    states: Sequence[Tensor], trees: Sequence[Sentence], kind: str, seed: int = 0
) -> list[TreeBatch]:
    """Batch sentences of about one length, which of them together is left to chance."""
    chance = np.random.default_rng(seed).random(len(trees))
    order = np.lexsort((chance, np.array([len(tree) for tree in trees])))
    found = []
    for start in range(0, len(order), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        length, targets, weights = len(trees[rows[-1]]), [], []  # of the longest
        for tree in (trees[row] for row in rows):
            target = torch.from_numpy(tree.distances if kind == DISTANCE else tree.depths).float()
            # A word and itself are no pair.
            asked = target > 0 if kind == DISTANCE else torch.ones_like(target)
            padding = (0, length - len(tree)) * target.dim()
            targets.append(F.pad(target, padding))
            weights.append(F.pad(asked / target.numel(), padding))
        padded = pad_sequence([states[row] for row in rows], batch_first=True)
        both = (torch.stack(part).to(padded.device) for part in (targets, weights))
        found.append(TreeBatch(padded, *both))
    return found


def train_probe(
    train: Sequence[TreeBatch],
    dev: Sequence[TreeBatch],
    kind: str,
    power: float,
    rank: int,
    epochs: int,
    seed: int,
) -> Tensor:  # B transposed, [D, R]
    """Train a probe as Hewitt and Manning 2019 do, until the loss on ``dev`` falls no more."""
    generator = torch.Generator().manual_seed(seed)
    states = train[0].states
    start = torch.empty(states.shape[-1], rank).uniform_(-START, START, generator=generator)
    projection = start.to(states.device).requires_grad_()
    optimizer = torch.optim.Adam([projection], lr=LEARNING_RATE)
    scheduler = ReduceLROnPlateau(optimizer, factor=DROP, patience=0)
    best, least, waited = projection.detach().clone(), math.inf, 0
    for _ in range(epochs):
        for index in torch.randperm(len(train), generator=generator).tolist():
            optimizer.zero_grad()
            mean = train[index].loss(projection, kind, power) / len(train[index].states)
            mean.backward()
            optimizer.step()
        with torch.no_grad():
            total = sum(float(batch.loss(projection, kind, power)) for batch in dev)
        loss = total / sum(len(batch.states) for batch in dev)
        scheduler.step(loss)
        if loss < least - MARGIN:
            best, least, waited = projection.detach().clone(), loss, 0
        elif (waited := waited + 1) == PATIENCE:
            break
    return best
