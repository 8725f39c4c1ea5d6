"""SemCor: texts of the Brown corpus in which all words are marked with their senses."""

from __future__ import annotations

import re
import tarfile
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from jat_graph.probes.meaning.marked import MarkedSentence, MarkedWord
from jat_graph.probes.meaning.wordnet import PARTS_OF_SPEECH, WordNet

FOLDER = "tagfiles"  # of each part: brown1 and brown2
LOST = "0"  # number of a sense that version 3.0 of WordNet no longer has
SIDE = re.compile(r"\((a|p|ip)\)")  # of a noun an adjective stands, which keys do not say

Attributes = list[tuple[str, str | None]]


def read_semcor(path: str | Path, wordnet: WordNet) -> list[MarkedSentence]:
    """Read SemCor 3.0 in its own format.

    Words of several, as ``took_place``, are cut into them. Senses that were lost on the way from
    version 1.6 of WordNet (``wnsn=0``) are left out; where annotators gave several, all are kept.

    Args:
        path: The packed file ``semcor3.0.tar.gz``, or the folder that it unpacks to.
        wordnet: WordNet 3.0, from :func:`open_wordnet`.

    Returns:
        The sentences, in the order of their files.

    Raises:
        ValueError: If there are none, or a sense is not in WordNet.
        OSError: If a file cannot be read.

    Reference:
        Miller et al., *A Semantic Concordance*, 1993.
    """
    found = []
    for name, content in sorted(_files(Path(path))):
        parser = _Parser(name, wordnet)
        parser.feed(content.decode("utf-8", errors="replace"))
        parser.close()
        found += parser.sentences
    if not found:
        raise ValueError(f"{path} must hold sentences of SemCor, got none")
    return found


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the tagged texts of a packed file or a folder."""
    if path.is_dir():
        for file in path.rglob(f"{FOLDER}/*"):
            yield str(file), file.read_bytes()
        return
    try:
        with tarfile.open(path) as packed:
            for member in packed:
                if member.isfile() and FOLDER in Path(member.name).parts:
                    content = packed.extractfile(member)
                    assert content is not None
                    yield f"{path}, {member.name}", content.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} must be SemCor's packed file or its folder: {error}") from None


class _Parser(HTMLParser):
    """Reads one text: SGML whose attributes stand without quotes."""

    def __init__(self, name: str, wordnet: WordNet) -> None:
        super().__init__()
        self.sentences: list[MarkedSentence] = []
        self._name, self._wordnet = name, wordnet
        self._words: list[str] = []
        self._marked: list[MarkedWord] = []
        self._word: dict[str, str | None] | None = None  # the one that is open

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        if tag == "s":
            self._words, self._marked = [], []
        elif tag in ("wf", "punc"):
            self._word = dict(attrs)

    def handle_data(self, data: str) -> None:
        if self._word is None:
            return
        first = len(self._words)
        self._words += [part for part in re.split(r"[_\s]+", data) if part]
        places = tuple(range(first, len(self._words)))
        senses = self._senses(self._word)
        if senses and places:
            lemma = self._word["lemma"] or ""
            self._marked.append(MarkedWord(lemma, _part_of_speech(senses), senses, places))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("wf", "punc"):
            self._word = None
        elif tag == "s" and self._words:
            self.sentences.append(
                MarkedSentence(tuple(self._words), tuple(self._marked), self._name)
            )

    def _senses(self, word: dict[str, str | None]) -> tuple[str, ...]:
        """The keys of a word's senses, those that were not lost."""
        numbers, lexical = ((word.get(name) or "").split(";") for name in ("wnsn", "lexsn"))
        found = [
            f"{word.get('lemma')}%{SIDE.sub('', part)}"
            for number, part in zip(numbers, lexical, strict=False)
            if number not in ("", LOST) and part
        ]
        for key in found:
            self._wordnet.check_key(key, self._name)
        return tuple(dict.fromkeys(found))


def _part_of_speech(senses: tuple[str, ...]) -> str:
    return PARTS_OF_SPEECH[senses[0].partition("%")[2][0]]
