"""Sentences of free text and of corpora, and clusters of the uses of their words."""

from __future__ import annotations

import logging
import re
import unicodedata
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from jat_graph.core.extras import import_extra
from jat_graph.core.files import open_text
from jat_graph.looking.probes.corpora import (
    SEMCOR_FOLDER,
    UNIVERSAL,
    open_wordnet,
    read_semcor,
    tell_nltk,
)
from jat_graph.looking.probes.findings import Floats, Integers
from jat_graph.looking.probes.treebank import read_treebank

TREE_ENDINGS = (".conllu", ".conllu.gz")
ENDINGS = (".txt", ".tokens", ".txt.gz", ".tokens.gz", *TREE_ENDINGS)
# Characters of a text from which its abbreviations are learned: in a shorter one any word that
# stands only at the ends of sentences looks like one.
LEAST_TRAINING, MOST_TRAINING = 20_000, 200_000

WORDNETS = {own: tag for tag, own in UNIVERSAL.items()}
# Beginnings of the Brown corpus's tags.
_TAGS = """
PART * to, DET ab at dt wdt, ADJ ap jj od, AUX be do hv md, CCONJ cc, NUM cd, SCONJ cs,
PRON ex pn pp wp, ADP in rp, NOUN nn nr, PROPN np, ADV ql rb rn wrb, INTJ uh, VERB vb
"""
_GROUPS = [group.split() for group in _TAGS.split(",")]
BROWN = {start: tag for tag, *starts in _GROUPS for start in starts}

_MARKS = {"``": '"', "''": '"'}  # as the Penn Treebank and Brown write quotation marks
_TITLE = re.compile(r"^ *=.*= *$", re.MULTILINE)  # of WikiText
_JOINED = re.compile(r" @([-,.])@ ")  # WikiText's way to write 3.5 and well-known


@dataclass(frozen=True)
class Context:
    """A sentence, and what is known of its words.

    Args:
        words: Its words.
        tags: Their parts of speech, of the 17 of Universal Dependencies, None for words without
            one; None if nobody knows. (default: None)
        senses: Their senses, None for words without one; None if nobody knows. (default: None)
    """

    words: tuple[str, ...]
    tags: tuple[str | None, ...] | None = None
    senses: tuple[str | None, ...] | None = None


def read_contexts(paths: str | Path | Iterable[str | Path]) -> Iterator[Context]:
    """Read sentences from files, one at a time.

    A name that ends in ``.conllu`` or ``.conllu.gz`` is a treebank, ``.zip`` the Brown corpus as
    NLTK packs it, both with parts of speech; ``.tar.gz`` or a folder with ``tagfiles`` is SemCor,
    with senses, too, for which WordNet must be there. Anything else is text, plain or packed by
    gzip. Of a folder the files are read whose names end in ``.txt``, ``.tokens`` or ``.conllu``,
    with ``.gz`` or without. Punkt cuts text into sentences, and learns abbreviations from the text
    itself if that is long enough; words are those of the Penn Treebank, where "don't" is two.

    Args:
        paths: A file or folder, or several.

    Yields:
        The sentences, in their order.

    Raises:
        ValueError: If there is no file, one is damaged or of another form, or WordNet is missing.

    Reference:
        Kiss and Strunk, *Unsupervised Multilingual Sentence Boundary Detection*, 2006.
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    if not several:
        raise ValueError("paths must name a file or folder, got none")
    files = [file for path in several for file in _files(Path(path))]  # all, before any is read
    for file in files:
        yield from _read(file)


def _is_semcor(path: Path) -> bool:
    return path.name.endswith(".tar.gz") or any(path.glob(f"*/{SEMCOR_FOLDER}"))


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"texts must be files or folders that exist, got {path}")
    if not path.is_dir() or _is_semcor(path):
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.endswith(ENDINGS))
    if not found:
        raise ValueError(f"{path} must hold files ending in {', '.join(ENDINGS)}, got none")
    return found


def _read(path: Path) -> Iterator[Context]:
    if _is_semcor(path):
        for sentence in read_semcor(path, open_wordnet()):
            known: dict[int, tuple[str, str]] = {}
            for word in sentence.marked:
                known |= dict.fromkeys(word.indices, (WORDNETS[word.pos], word.senses[0]))
            both = [known.get(index, (None, None)) for index in range(len(sentence.words))]
            tags, senses = zip(*both, strict=True)
            yield Context(sentence.words, tags, senses)
    elif path.name.endswith(TREE_ENDINGS):
        yield from (Context(own.words, own.tags) for own in read_treebank(path))
    elif path.suffix == ".zip":
        yield from _read_brown(path)
    else:
        text = open_text(path).read()
        if not text.strip():
            raise ValueError(f"{path} must hold text, got none")
        yield from cut_text(text)


def _read_brown(path: Path) -> Iterator[Context]:
    """Read the corpus by nltk, and once the "? ?" that it has for nearly every "?"."""
    data, reader = import_extra("nltk.data"), import_extra("nltk.corpus.reader")

    def universal(tag: str) -> str:
        own = tag.lower().removeprefix("fw-")
        if not any(letter.isalpha() for letter in own) and own != "*":
            return "PUNCT"
        return next((BROWN[own[:n]] for n in (3, 2, 1) if own[:n] in BROWN), "X")

    tell_nltk(path.resolve().parent)
    try:
        root = data.ZipFilePathPointer(str(path.resolve()), "brown/")
        tagged = reader.TaggedCorpusReader(root, r"c[a-r]\d\d", encoding="utf-8")
        for pairs in tagged.tagged_sents():
            doubled = [old == new and not new[0].isalnum() for old, new in pairwise(pairs)]
            once = [pair for pair, again in zip(pairs, [False, *doubled], strict=True) if not again]
            words = tuple(_MARKS.get(word, word) for word, _ in once)
            yield Context(words, tuple(universal(tag or "") for _, tag in once))
    except (OSError, ValueError, NotImplementedError, BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} must be the Brown corpus as NLTK packs it: {error}") from None


def cut_text(text: str) -> Iterator[Context]:
    """Yield the sentences of a text; what WikiText left out is an ellipsis, and titles are none."""
    tokenize = import_extra("nltk.tokenize")
    plain_text = _JOINED.sub(r"\1", _TITLE.sub("", text)).replace("<unk>", "…")
    long_enough = len(plain_text) >= LEAST_TRAINING
    sentences = tokenize.PunktSentenceTokenizer(plain_text[:MOST_TRAINING] if long_enough else None)
    words = tokenize.NLTKWordTokenizer()
    for paragraph in re.split(r"\n\s*\n", plain_text):
        for sentence in sentences.tokenize(paragraph):
            if found := words.tokenize(sentence):
                yield Context(tuple(_MARKS.get(word, word) for word in found))


@lru_cache(maxsize=2**17)  # words: all that a large corpus has
def plain(word: str) -> str:
    """Return a word without regard to case and to how its accents are written."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", word).casefold())


def find_uses(
    word: str, contexts: Iterable[Context], most: int, seed: int
) -> tuple[list[tuple[Context, int]], int, int]:
    """Draw sentences with a word and where it first stands; say of how many, and how many read."""
    if not isinstance(word, str) or len(word.split()) != 1:
        raise ValueError(f"word must be one word without spaces, got {word!r}")
    wanted, read = plain(word.strip()), 0
    known: dict[str, tuple[Context, int]] = {}
    for context in contexts:
        read += 1
        words = [plain(own) for own in context.words]
        if wanted in words:
            # Of sentences with the same letters the first counts: SemCor's are Brown's, too.
            letters = "".join(filter(str.isalnum, "".join(words)))
            known.setdefault(letters, (context, words.index(wanted)))
    if not known:
        raise ValueError(f"word must stand in a sentence, got {word!r} in none of {read}")
    found = list(known.values())
    if len(found) > most:
        chosen = np.random.default_rng(seed).choice(len(found), most, replace=False)
        found = [found[index] for index in sorted(chosen)]
    return found, len(known), read


UMAP, COMPONENTS = "UMAP", "PCA"
NOISE = 1e-3  # of a first layout, since UMAP divides by how far it reaches each way
SAME = 1e-4  # of a state's length: what is nearer is one point
MOST_CLUSTERS = 8
PRIOR = 50.0  # words that every cluster is thought to have had before, drawn from all
SURELY, TELLING = 1.96, 6  # standard deviations from no difference, and words of a cluster
logger = logging.getLogger(__name__)


def directions(states: Floats) -> Floats:  # [N, D] -> [N, D]
    """Return states seen from their middle, all of one length; 0 where they do not differ."""
    middle = states.mean(0)
    lengths = np.linalg.norm(states - middle, axis=1, keepdims=True)
    apart = lengths > SAME * np.linalg.norm(states, axis=1, keepdims=True)
    return np.where(apart, (states - middle) / np.where(apart, lengths, 1), 0.0)


def lay_out(rows: Sequence[Floats], seed: int) -> tuple[Floats, str]:
    """Lay out each layer, [P, N, 2] with root mean square 1 around 0, and say by which method."""
    PCA = import_extra("sklearn.decomposition").PCA
    orthogonal_procrustes = import_extra("scipy.linalg").orthogonal_procrustes
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)  # of a part that wants TensorFlow
            import umap
    except ImportError:
        message = "umap-learn is not installed, so PCA lays points out: pip install 'jat_graph[%s]'"
        logger.warning(message, "atlas")
        umap = None
    found: list[Floats] = []
    for points in rows:
        placed: Floats = np.zeros((len(points), 2))
        if points.any():  # or there is no spread to explain
            goes_on = umap is not None and bool(found) and bool(found[-1].any())
            placed = found[-1] if goes_on else PCA(2, svd_solver="full").fit_transform(points)
            placed = _unit(placed)
            if umap is not None:
                start = placed + NOISE * np.random.default_rng(seed).normal(size=placed.shape)
                options = {"n_neighbors": min(15, len(points) - 1), "n_epochs": 200, "n_jobs": 1}
                umapped = umap.UMAP(init=start, random_state=seed, **options)
                placed = _unit(umapped.fit_transform(points))
        if found:  # turned or mirrored onto the one below, which leaves near what is near
            turn, _ = orthogonal_procrustes(placed, found[-1])
            placed = placed @ turn
        found.append(placed)
    return np.stack(found), COMPONENTS if umap is None else UMAP


def _unit(points: Floats) -> Any:
    """A layout around 0 with root mean square 1; one without spread stays at 0."""
    centred = points - points.mean(0)
    size = np.sqrt((centred**2).sum(1).mean())
    return centred / size if size > 0 else centred


def find_clusters(points: Floats, seed: int) -> tuple[Integers, float]:
    """Part points into clusters, the largest first, as many as give the best silhouette, or one."""
    names = ("cluster", "decomposition", "metrics")
    cluster, decomposition, metrics = (import_extra(f"sklearn.{name}") for name in names)
    most = min(MOST_CLUSTERS, len(np.unique(points.round(4), axis=0)) - 1)
    labels, best = np.zeros(len(points), np.int64), float("nan")
    if most < 2:
        return labels, best
    main = decomposition.PCA(min(30, *points.shape), svd_solver="full")  # takes less time
    main = main.fit_transform(points)
    for number in range(2, most + 1):
        found = cluster.KMeans(number, n_init=5, random_state=seed).fit_predict(main)
        score = float(metrics.silhouette_score(points, found))
        if not score <= best:
            labels, best = found.astype(np.int64), score
    order = np.argsort(-np.bincount(labels), kind="stable")
    return np.argsort(order)[labels], best


def renamed(labels: Integers, below: Integers) -> Any:
    """Give clusters the numbers of those below whose points they have, and others new ones."""
    size = 1 + max(labels.max(), below.max())
    shared = np.zeros((size, size), np.int64)
    np.add.at(shared, (labels, below), 1)
    own, other = import_extra("scipy.optimize").linear_sum_assignment(shared, maximize=True)
    return other[np.argsort(own)][labels]


def telling_words(
    word: str, sentences: Sequence[Sequence[str]], labels: Integers
) -> dict[int, list[str]]:
    """Name the words of sentences with a word that tell each cluster from all others."""
    clusters = np.unique(labels)
    sets = [set(map(plain, words)) - {plain(word)} for words in sentences]
    often = Counter(own for some in sets for own in some if own[:1].isalpha())
    known = [own for own in sorted(often) if often[own] >= 2]
    if len(clusters) == 1 or len(known) < 2:
        return {int(one): [] for one in clusters}
    present = np.array([[own in some for own in known] for some in sets])
    counts = np.stack([present[labels == one].sum(0) for one in clusters])
    # Log-odds with a prior, in standard deviations (Monroe et al., *Fightin' Words*, Political
    # Analysis, 2008, equations 15 to 22).
    prior = PRIOR * counts.sum(0) / counts.sum()
    inside, rest = counts + prior, counts.sum(0) - counts + prior
    odds = (np.log(one) - np.log(one.sum(1, keepdims=True) - one) for one in (inside, rest))
    surety = np.subtract(*odds) / np.sqrt(1 / inside + 1 / rest)
    surest = np.argsort(-surety, axis=1, kind="stable")[:, :TELLING]
    return {
        int(one): [known[index] for index in chosen if row[index] > SURELY]
        for one, row, chosen in zip(clusters, surety, surest, strict=True)
    }
