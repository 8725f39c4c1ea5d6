"""Sentences of free text and of corpora, with what is known of their words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from jat_graph.probes.meaning.marked import MarkedSentence
from jat_graph.probes.meaning.semcor import FOLDER, read_semcor
from jat_graph.probes.meaning.wordnet import open_wordnet
from jat_graph.probes.treebank import read_text, read_treebank
from jat_graph.tasks.brown import tagged_sentences

TEXT_ENDINGS = (".txt", ".tokens", ".txt.gz", ".tokens.gz")
TREE_ENDINGS = (".conllu", ".conllu.gz")
# Characters of a text from which its abbreviations are learned: in a shorter one any word that
# stands only at the ends of sentences looks like one.
LEAST_TRAINING, MOST_TRAINING = 20_000, 200_000

UNKNOWN = "X"
# Tags of the Brown corpus and of the Penn Treebank; of several that fit the longest counts.
UNIVERSAL = {
    "*": "PART",
    "ab": "DET",
    "ap": "ADJ",
    "at": "DET",
    "be": "AUX",
    "cc": "CCONJ",
    "cd": "NUM",
    "cs": "SCONJ",
    "do": "AUX",
    "dt": "DET",
    "ex": "PRON",
    "hv": "AUX",
    "in": "ADP",
    "jj": "ADJ",
    "md": "AUX",
    "nn": "NOUN",
    "nnp": "PROPN",
    "np": "PROPN",
    "nr": "NOUN",
    "od": "ADJ",
    "pdt": "DET",
    "pn": "PRON",
    "pp": "PRON",
    "prp": "PRON",
    "ql": "ADV",
    "rb": "ADV",
    "rn": "ADV",
    "rp": "ADP",
    "to": "PART",
    "uh": "INTJ",
    "vb": "VERB",
    "wdt": "DET",
    "wp": "PRON",
    "wrb": "ADV",
}
PUNCTUATION = "PUNCT"
WORDNETS = {"n": "NOUN", "v": "VERB", "a": "ADJ", "r": "ADV"}

_MARKS = {"``": '"', "''": '"'}  # as the Penn Treebank and Brown write quotation marks
_TITLE = re.compile(r"^ *=.*= *$", re.MULTILINE)  # of WikiText
_JOINED = re.compile(r" @([-,.])@ ")  # WikiText's way to write 3.5 and well-known
_UNKNOWN_WORD = "<unk>"  # of WikiText, too
_PARAGRAPHS = re.compile(r"\n\s*\n")


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
    gzip.
    Of a folder the files are read whose names end in ``.txt``, ``.tokens`` or ``.conllu``, with
    ``.gz`` or without. Text is cut into sentences by Punkt, which learns the abbreviations from
    the text itself if that is long enough, and into words as the Penn Treebank does, so that
    "don't" is two.

    Args:
        paths: A file or folder, or several.

    Yields:
        The sentences, in their order.

    Raises:
        ValueError: If there is no file, one is damaged or of another form, or WordNet is missing.
        OSError: If a file cannot be read.

    Reference:
        Kiss and Strunk, *Unsupervised Multilingual Sentence Boundary Detection*, Computational
        Linguistics, 2006.
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    if not several:
        raise ValueError("paths must name a file or folder, got none")
    files = [file for path in several for file in _files(Path(path))]  # all, before any is read
    for file in files:
        yield from _read(file)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"texts must be files or folders that exist, got {path}")
    if not path.is_dir() or _is_semcor(path):
        return [path]
    endings = TEXT_ENDINGS + TREE_ENDINGS
    found = sorted(file for file in path.iterdir() if file.name.endswith(endings))
    if not found:
        raise ValueError(f"{path} must hold files ending in {', '.join(endings)}, got none")
    return found


def _is_semcor(path: Path) -> bool:
    return path.name.endswith(".tar.gz") or any(path.glob(f"*/{FOLDER}"))


def _read(path: Path) -> Iterator[Context]:
    if _is_semcor(path):
        return (_of_semcor(own) for own in read_semcor(path, open_wordnet()))
    if path.name.endswith(TREE_ENDINGS):
        return (Context(own.words, own.tags) for own in read_treebank(path))
    if path.suffix == ".zip":
        return (_of_brown(pairs) for pairs in tagged_sentences(path))
    return cut_text(read_text(path))


def _of_semcor(sentence: MarkedSentence) -> Context:
    tags: list[str | None] = [None] * len(sentence)
    senses: list[str | None] = [None] * len(sentence)
    for word in sentence.marked:
        for place in word.places:
            tags[place], senses[place] = WORDNETS[word.pos], word.senses[0]
    return Context(sentence.words, tuple(tags), tuple(senses))


def _of_brown(pairs: list[tuple[str, str]]) -> Context:
    """Take a sentence of the corpus, which has "? ?" for nearly every "?"."""
    doubled = [old == new and not new[0].isalnum() for old, new in pairwise(pairs)]
    once = [pair for pair, again in zip(pairs, [False, *doubled], strict=True) if not again]
    words = tuple(_MARKS.get(word, word) for word, _ in once)
    return Context(words, tuple(universal_tag(tag) for _, tag in once))


def universal_tag(tag: str) -> str:
    """The part of speech in Universal Dependencies of a tag of Brown or the Penn Treebank."""
    own = tag.lower().removeprefix("fw-")
    if not any(letter.isalpha() for letter in own) and own != "*":
        return PUNCTUATION
    fitting = (own[:length] for length in (3, 2, 1))
    return next((UNIVERSAL[start] for start in fitting if start in UNIVERSAL), UNKNOWN)


def cut_text(text: str) -> Iterator[Context]:
    """Yield the sentences of a text, word by word.

    WikiText's titles are none, and the words that it left out are an ellipsis.
    """
    from nltk.tokenize import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktSentenceTokenizer

    plain = _JOINED.sub(r"\1", _TITLE.sub("", text)).replace(_UNKNOWN_WORD, "…")
    known = plain[:MOST_TRAINING] if len(plain) >= LEAST_TRAINING else None
    sentences = PunktSentenceTokenizer(known)
    words = NLTKWordTokenizer()
    for paragraph in _PARAGRAPHS.split(plain):
        for sentence in sentences.tokenize(paragraph):
            found = words.tokenize(sentence)
            if found:
                yield Context(tuple(_MARKS.get(word, word) for word in found))
