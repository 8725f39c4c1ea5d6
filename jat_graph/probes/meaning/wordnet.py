"""Which senses a word has, by WordNet."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nltk.corpus.reader.wordnet import WordNetCorpusReader
    from nltk.data import PathPointer

NLTK = ("corpora/wordnet", "corpora/wordnet.zip/wordnet/")  # as it is downloaded, or unpacked
DEBIAN = Path("/usr/share/wordnet")
FILES = tuple(
    f"{kind}.{pos}" for kind in ("index", "data") for pos in ("noun", "verb", "adj", "adv")
)
PARTS_OF_SPEECH = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}  # by the number in a key
CURE = "install Debian's wordnet-base, run nltk.download('wordnet'), or give its folder"

# The files that WordNet's authors wrote, in the order of their numbers.
LEXNAMES = "lexnames"
LEXICOGRAPHERS = """
adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute noun.body
noun.cognition noun.communication noun.event noun.feeling noun.food noun.group noun.location
noun.motive noun.object noun.person noun.phenomenon noun.plant noun.possession noun.process
noun.quantity noun.relation noun.shape noun.state noun.substance noun.time verb.body verb.change
verb.cognition verb.communication verb.competition verb.consumption verb.contact verb.creation
verb.emotion verb.motion verb.perception verb.possession verb.social verb.stative verb.weather
adj.ppl
""".split()


@dataclass(frozen=True)
class WordNet:
    """The senses of words, from :func:`open_wordnet`.

    Args:
        root: The folder that it was read from.
        reader: nltk's reader of it.
    """

    root: str
    reader: WordNetCorpusReader
    _known: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict, repr=False)

    def senses(self, lemma: str, pos: str) -> tuple[str, ...]:
        """Return the keys of the senses of a word, the most usual one first.

        Args:
            lemma: The word's base form, with ``_`` between the words of several.
            pos: Its part of speech: ``"n"``, ``"v"``, ``"a"``, or ``"r"`` for adverbs.

        Returns:
            Sense keys as ``bank%1:17:01::``; none where WordNet lacks the word.
        """
        if (lemma, pos) not in self._known:
            found = self.reader.lemmas(lemma, pos)
            self._known[lemma, pos] = tuple(dict.fromkeys(sense.key() for sense in found))
        return self._known[lemma, pos]

    def definition(self, key: str) -> str:
        """Return what a sense is.

        Args:
            key: Its key.

        Returns:
            The definition of its synonym set.

        Raises:
            ValueError: If there is no such sense.
        """
        self.check_key(key, "key")
        lemma, _, lexical = key.partition("%")
        lemmas = self.reader.lemmas(lemma, PARTS_OF_SPEECH[lexical[:1]])
        own = next(sense for sense in lemmas if sense.key() == key)
        return str(own.synset().definition())

    def check_key(self, key: str, where: object) -> None:
        """Refuse a sense key that WordNet lacks.

        Args:
            key: The key.
            where: The file that has it, for the message.

        Raises:
            ValueError: If there is no such sense.
        """
        lemma, _, lexical = key.partition("%")
        pos = PARTS_OF_SPEECH.get(lexical[:1])
        if pos is None or key not in self.senses(lemma, pos):
            version = self.reader.get_version()
            raise ValueError(
                f"{where} must have sense keys of WordNet, got {key!r}, "
                f"which version {version} in {self.root} lacks"
            )


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
    root = _downloaded() if folder is None else _pointer(Path(folder))
    if root is None:
        where = "the usual places" if folder is None else folder
        raise ValueError(f"WordNet must be there, got none in {where}: {CURE}")
    for name in FILES:
        try:
            root.join(name)
        except OSError:
            wrong = f"{root} must have all files of WordNet, got no {name}: {CURE}"
            raise ValueError(wrong) from None
    return WordNet(str(root), _reader(root))


def _downloaded() -> PathPointer | None:
    import nltk.data

    for name in NLTK:
        try:
            return nltk.data.find(name)
        except LookupError:
            continue
    return _pointer(DEBIAN)


def _pointer(folder: Path) -> PathPointer | None:
    """The folder as nltk takes it, which reads from none that it was not told of."""
    import nltk.data

    if not folder.is_dir():
        return None
    whole = str(folder.resolve())
    if whole not in nltk.data.path:
        nltk.data.path.append(whole)
    return nltk.data.FileSystemPathPointer(whole)


def _reader(root: PathPointer) -> WordNetCorpusReader:
    from nltk.corpus.reader.wordnet import WordNetCorpusReader

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        """Reads WordNet without two files that Debian's package lacks, and leaves none open."""

        def open(self, file: str) -> Any:
            """The whole file, in which a byte is a letter: they are ASCII."""
            if file == LEXNAMES:
                names = enumerate(LEXICOGRAPHERS)
                return io.StringIO("".join(f"{number:02d} {name} 0\n" for number, name in names))
            with super().open(file) as stream:
                return io.StringIO(stream.read())

        def map_wn(self, version: str = "wordnet") -> None:
            """Map nothing to other versions: only other languages need it."""

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The multilingual functions")
        return Reader(root, None)
