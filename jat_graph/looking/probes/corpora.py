"""Sentences in which words are marked with their senses: SemCor, evaluation sets, and WordNet."""

from __future__ import annotations

import html
import io
import re
import tarfile
import warnings
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.core.extras import import_extra
from jat_graph.core.files import open_text, parse_xml

if TYPE_CHECKING:
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

PARTS_OF_SPEECH = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}  # by the number in a key
UNIVERSAL = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "r"}
TEXTS, KEYS = ".data.xml", ".gold.key.txt"
SEMCOR_FOLDER = "tagfiles"  # of each part: brown1 and brown2
SIDE = re.compile(r"\((a|p|ip)\)")  # of a noun an adjective stands, which keys do not say
# SemCor is SGML whose attributes stand without quotes.
START, STOP = re.compile(r"<s\b[^<>]*>"), "</s>"  # of a sentence
WORD = re.compile(r"<(?:wf|punc)\b([^<>]*)>([^<]*)")
ATTRIBUTE = re.compile(r"\b(\w+)=(\S+)")
DEBIAN = "/usr/share/wordnet"
# The file of WordNet's parts, which Debian's package lacks; keys of senses hold their numbers.
PARTS = """
adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body
noun.cognition noun.communication noun.event noun.feeling noun.food noun.group noun.location
noun.motive noun.object noun.person noun.phenomenon noun.plant noun.possession noun.process
noun.quantity noun.relation noun.shape noun.state noun.substance noun.time verb.body verb.change
verb.cognition verb.communication verb.competition verb.consumption verb.contact verb.creation
verb.emotion verb.motion verb.perception verb.possession verb.social verb.stative verb.weather
adj.ppl
""".split()


@dataclass(frozen=True)
class MarkedWord:
    """A word whose sense is known."""

    lemma: str  # with ``_`` between the words of several
    pos: str  # "n", "v", "a", or "r" for adverbs
    senses: tuple[str, ...]  # the key of its sense in WordNet, or of all that fit
    indices: tuple[int, ...]  # of each of its words in the sentence


@dataclass(frozen=True)
class MarkedSentence:
    """The words of a sentence, and those of them whose senses are known."""

    words: tuple[str, ...]
    marked: tuple[MarkedWord, ...]
    text: str  # the text that it is from


class WordNet:
    """The senses of words, by nltk's reader of a folder."""

    def __init__(self, root: str, reader: WordNetCorpusReader) -> None:
        self.root, self.reader = root, reader
        self._lemmas = cache(self.reader.lemmas)

    def senses(self, lemma: str, pos: str) -> tuple[str, ...]:
        """Return the keys of the senses of a word, as ``bank%1:17:01::``, the most usual first."""
        return tuple(dict.fromkeys(sense.key() for sense in self._lemmas(lemma, pos)))

    def definition(self, key: str, where: object = "key") -> str:
        """Return what the sense of a key is, or say where it stands if there is none."""
        lemma, _, lexical = key.partition("%")
        pos = PARTS_OF_SPEECH.get(lexical[:1])
        for sense in () if pos is None else self._lemmas(lemma, pos):
            if sense.key() == key:
                return str(sense.synset().definition())
        version = f"which version {self.reader.get_version()} in {self.root} lacks"
        raise ValueError(f"{where} must have sense keys of WordNet, got {key!r}, {version}")


def open_wordnet(folder: str | Path | None = None) -> WordNet:
    """Open WordNet, for which sense keys of SemCor and the evaluation sets are those of 3.0.

    Args:
        folder: The folder of its files, ``index.noun`` and the others. (default: None, nltk's
            data, and where there are none ``/usr/share/wordnet`` of Debian's package)

    Returns:
        The senses of words.

    Raises:
        ValueError: If it is not there; the message says how to get it.

    Reference:
        Fellbaum (ed.), *WordNet: An Electronic Lexical Database*, 1998.
    """
    data, wordnet = import_extra("nltk.data"), import_extra("nltk.corpus.reader.wordnet")

    class Reader(wordnet.WordNetCorpusReader):  # type: ignore[misc, name-defined]
        """Reads WordNet without two files that Debian's package lacks, and leaves none open."""

        def open(self, file: str) -> Any:
            """The whole file, in which a byte is a letter: they are ASCII."""
            if file == "lexnames":
                return io.StringIO("".join(f"{n:02d} {name} 0\n" for n, name in enumerate(PARTS)))
            with super().open(file) as stream:
                return io.StringIO(stream.read())

        def map_wn(self, version: str = "wordnet") -> None:
            """Map nothing to other versions: only other languages need it."""

    own = Path(folder or DEBIAN).resolve()
    tell_nltk(own)
    names = ["corpora/wordnet", "corpora/wordnet.zip/wordnet/"] if folder is None else []
    for name in (*names, None):
        try:
            root = data.find(name) if name else data.FileSystemPathPointer(str(own))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="The multilingual functions")
                return WordNet(str(root), Reader(root, None))
        except (LookupError, OSError):
            continue
    raise ValueError(
        f"WordNet must be there whole, got none in {folder or 'the usual places'}: install "
        "Debian's wordnet-base, run nltk.download('wordnet'), or give its folder"
    )


def tell_nltk(folder: Path) -> None:
    """Let nltk read from a folder; it reads from none that it was not told of."""
    places = import_extra("nltk.data").path
    if str(folder) not in places:
        places.append(str(folder))


def read_semcor(path: str | Path, wordnet: WordNet) -> list[MarkedSentence]:
    """Read SemCor 3.0 in its own format.

    Words of several, as ``took_place``, are cut into them. Senses that version 3.0 of WordNet lost
    (``wnsn=0``) are left out; where annotators gave several, all are kept.

    Args:
        path: The packed file ``semcor3.0.tar.gz``, or the folder that it unpacks to.
        wordnet: WordNet 3.0, from :func:`open_wordnet`.

    Returns:
        The sentences, in the order of their files.

    Raises:
        ValueError: If there are none, or a sense is not in WordNet.

    Reference:
        Miller et al., *A Semantic Concordance*, 1993.
    """
    found = []
    for name, content in sorted(_tagged_files(Path(path))):
        text = content.decode("utf-8", errors="replace")
        pieces = text.split(STOP)[:-1]
        for sentence in (part for own in pieces for part in START.split(own, maxsplit=1)[1:]):
            words, marked = list[str](), list[MarkedWord]()
            for tags, said in WORD.findall(sentence):
                own, first = defaultdict(str, ATTRIBUTE.findall(tags)), len(words)
                words += html.unescape(said).replace("_", " ").split()
                numbers, lexical = own["wnsn"].split(";"), own["lexsn"].split(";")
                keys = [
                    f"{own['lemma']}%{SIDE.sub('', part)}"
                    for number, part in zip(numbers, lexical, strict=False)
                    if number not in ("", "0") and part  # 0: version 3.0 no longer has it
                ]
                for key in keys:
                    wordnet.definition(key, name)
                if keys and len(words) > first:
                    pos = PARTS_OF_SPEECH[keys[0].partition("%")[2][0]]
                    indices = tuple(range(first, len(words)))
                    senses = tuple(dict.fromkeys(keys))
                    marked.append(MarkedWord(own["lemma"], pos, senses, indices))
            if words:
                found.append(MarkedSentence(tuple(words), tuple(marked), name))
    if not found:
        raise ValueError(f"{path} must hold sentences of SemCor, got none")
    return found


def _tagged_files(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        yield from ((str(file), file.read_bytes()) for file in path.rglob(f"{SEMCOR_FOLDER}/*"))
        return
    try:
        with tarfile.open(path) as packed:
            for member in packed:
                file = packed.extractfile(member)
                if file and SEMCOR_FOLDER in Path(member.name).parts:
                    yield f"{path}, {member.name}", file.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} must be SemCor's packed file or its folder: {error}") from None


def read_evaluation(path: str | Path, wordnet: WordNet) -> dict[str, list[MarkedSentence]]:
    """Read evaluation sets in the format of the unified framework.

    A set are ``name.data.xml``, its sentences, and ``name.gold.key.txt``, its instances' senses.

    Args:
        path: A folder with sets, at any depth, or the ``.data.xml`` of one.
        wordnet: As for :func:`read_semcor`.

    Returns:
        The sentences of each set, by its name.

    Raises:
        ValueError: If there is none, a file is broken, or a sense is not in WordNet.

    Reference:
        Raganato et al., *Word Sense Disambiguation: A Unified Evaluation Framework*, 2017.
    """
    path = Path(path)
    files = sorted(path.rglob(f"*{TEXTS}")) if path.is_dir() else [path]
    if not files or not files[0].name.endswith(TEXTS):
        raise ValueError(f"{path} must be evaluation sets, got no *{TEXTS}")
    return {file.name.removesuffix(TEXTS): _read_set(file, wordnet) for file in files}


def _read_keys(path: Path, wordnet: WordNet) -> dict[str, tuple[str, ...]]:
    keys: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(open_text(path), start=1):
        name, *senses = line.split() or [""]
        if name and not senses:
            raise ValueError(f"{path}, line {number} must be an instance and its senses: {line!r}")
        for sense in senses:
            wordnet.definition(sense, f"{path}, line {number}")
        keys[name] = tuple(senses)
    return keys


def _read_set(path: Path, wordnet: WordNet) -> list[MarkedSentence]:
    keys = _read_keys(path.with_name(path.name.removesuffix(TEXTS) + KEYS), wordnet)
    root, found = parse_xml(path.read_bytes(), str(path)), []
    for text in root.iter("text"):
        for sentence in text.iter("sentence"):
            words, marked = list[str](), list[MarkedWord]()
            for child in sentence:
                first, name, pos = len(words), child.get("id", ""), child.get("pos", "")
                words += (child.text or "").split()
                if child.tag != "instance":
                    continue
                where = f"{path}, instance {name!r}"
                if name not in keys:
                    raise ValueError(f"{where} must have a sense in the file of keys, got none")
                if pos not in UNIVERSAL:
                    wanted = f"pos must be one of {', '.join(UNIVERSAL)}"
                    raise ValueError(f"{where}: {wanted}, got {pos!r}")
                if len(words) == first:
                    raise ValueError(f"{where} must have a word, got none")
                lemma, indices = child.get("lemma", "").lower(), tuple(range(first, len(words)))
                marked.append(MarkedWord(lemma, UNIVERSAL[pos], keys[name], indices))
            found.append(MarkedSentence(tuple(words), tuple(marked), text.get("id", "")))
    if not any(sentence.marked for sentence in found):
        raise ValueError(f"{path} must hold sentences with instances, got none")
    return found
