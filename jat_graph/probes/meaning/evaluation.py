"""The unified evaluation sets of word senses."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from jat_graph.files import parse_xml
from jat_graph.probes.meaning.marked import MarkedSentence, MarkedWord
from jat_graph.probes.meaning.wordnet import WordNet

TEXTS, KEYS = ".data.xml", ".gold.key.txt"
PARTS_OF_SPEECH = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "r"}


def read_evaluation(path: str | Path, wordnet: WordNet) -> dict[str, list[MarkedSentence]]:
    """Read evaluation sets in the format of the unified framework.

    A set is a file ``name.data.xml`` of sentences and a file ``name.gold.key.txt`` of the senses
    of its instances, one or several each.

    Args:
        path: A folder with sets, at any depth, or the ``.data.xml`` of one.
        wordnet: WordNet 3.0, from :func:`open_wordnet`.

    Returns:
        The sentences of each set, by its name.

    Raises:
        ValueError: If there is none, a file is broken, or a sense is not in WordNet.
        OSError: If a file cannot be read.

    Reference:
        Raganato, Camacho-Collados and Navigli, *Word Sense Disambiguation: A Unified Evaluation
        Framework and Empirical Comparison*, 2017.
    """
    path = Path(path)
    files = sorted(path.rglob(f"*{TEXTS}")) if path.is_dir() else [path]
    if not files or not files[0].name.endswith(TEXTS):
        raise ValueError(f"{path} must be evaluation sets, got no *{TEXTS}")
    return {file.name.removesuffix(TEXTS): _read_set(file, wordnet) for file in files}


def _read_set(path: Path, wordnet: WordNet) -> list[MarkedSentence]:
    keys = _read_keys(path.with_name(path.name.removesuffix(TEXTS) + KEYS), wordnet)
    root = parse_xml(path.read_bytes(), str(path))
    found = [
        _sentence(sentence, text.get("id", ""), keys, path)
        for text in root.iter("text")
        for sentence in text.iter("sentence")
    ]
    if not any(sentence.marked for sentence in found):
        raise ValueError(f"{path} must hold sentences with instances, got none")
    return found


def _read_keys(path: Path, wordnet: WordNet) -> dict[str, tuple[str, ...]]:
    """The senses of each instance."""
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        name, *senses = line.split() or [""]
        if name and not senses:
            raise ValueError(f"{path}, line {number} must be an instance and its senses: {line!r}")
        for sense in senses:
            wordnet.check_key(sense, f"{path}, line {number}")
        found[name] = tuple(senses)
    return found


def _sentence(
    element: ElementTree.Element, text: str, keys: dict[str, tuple[str, ...]], path: Path
) -> MarkedSentence:
    words: list[str] = []
    marked = []
    for child in element:
        first = len(words)
        words += (child.text or "").split()
        if child.tag == "instance":
            places = tuple(range(first, len(words)))
            marked.append(_marked_word(child, keys, places, path))
    return MarkedSentence(tuple(words), tuple(marked), text)


def _marked_word(
    element: ElementTree.Element,
    keys: dict[str, tuple[str, ...]],
    places: tuple[int, ...],
    path: Path,
) -> MarkedWord:
    name, pos = element.get("id", ""), element.get("pos", "")
    where = f"{path}, instance {name!r}"
    if name not in keys:
        raise ValueError(f"{where} must have a sense in the file of keys, got none")
    if pos not in PARTS_OF_SPEECH:
        raise ValueError(f"{where}: pos must be one of {', '.join(PARTS_OF_SPEECH)}, got {pos!r}")
    if not places:
        raise ValueError(f"{where} must have a word, got none")
    return MarkedWord(element.get("lemma", "").lower(), PARTS_OF_SPEECH[pos], keys[name], places)
