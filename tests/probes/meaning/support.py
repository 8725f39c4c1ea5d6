"""A WordNet of a few words in its format, and sentences that are marked with its senses."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from jat_graph.probes import MarkedSentence, MarkedWord

FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}


class Synset(NamedTuple):
    """A line of a data file."""

    pos: str  # "s" for satellites, which stand in the file of adjectives
    lexicographer: int
    words: tuple[tuple[str, int], ...]  # with their numbers
    head: int | None = None  # of a satellite, its place in the list


SYNSETS = (
    Synset("n", 20, (("bark", 0), ("dill", 3))),
    Synset("n", 11, (("bark", 0),)),
    Synset("n", 10, (("book", 0),)),
    Synset("n", 6, (("book", 1), ("book_bill", 0))),
    Synset("v", 32, (("bark", 0),)),
    Synset("v", 41, (("book", 0),)),
    Synset("a", 0, (("dark(p)", 2),)),
    Synset("s", 0, (("lark", 0), ("bill", 1)), head=6),
    Synset("a", 44, (("bill", 0),)),
    Synset("r", 2, (("lark", 0),)),
)
KEYS = {
    ("bark", "n"): ("bark%1:20:00::", "bark%1:11:00::"),
    ("book", "n"): ("book%1:10:00::", "book%1:06:01::"),
    ("bark", "v"): ("bark%2:32:00::",),
    ("book", "v"): ("book%2:41:00::",),
    ("dill", "n"): ("dill%1:20:03::",),
    ("book_bill", "n"): ("book_bill%1:06:00::",),
    ("bill", "a"): ("bill%5:00:01:dark:02", "bill%3:44:00::"),
    ("lark", "a"): ("lark%5:00:00:dark:02",),
    ("lark", "r"): ("lark%4:02:00::",),
    ("lump", "n"): (),
}


def write_wordnet(folder: Path, version: str = "3.0") -> Path:
    """Write the files that Debian's package has."""
    folder.mkdir(parents=True, exist_ok=True)
    for pos, name in FILES.items():
        (folder / f"{name}.exc").write_text("", encoding="utf-8")
        own = [place for place, s in enumerate(SYNSETS) if s.pos.replace("s", "a") == pos]
        offsets: dict[int, int] = {}
        text = f"  1 WordNet {version} Copyright\n"
        for place in own:
            offsets[place] = len(text)
            text += _line(SYNSETS[place], offsets, len(text))
        (folder / f"data.{name}").write_text(text, encoding="utf-8")
        lemmas: dict[str, list[int]] = {}
        for place in own:
            for word, _ in SYNSETS[place].words:
                lemmas.setdefault(word.partition("(")[0], []).append(offsets[place])
        lines = [
            f"{lemma} {pos} {len(some)} 0 {len(some)} 0 {' '.join(f'{o:08d}' for o in some)}  \n"
            for lemma, some in sorted(lemmas.items())
        ]
        (folder / f"index.{name}").write_text("  1 notice\n" + "".join(lines), encoding="utf-8")
    return folder


def _line(synset: Synset, offsets: dict[int, int], offset: int) -> str:
    words = " ".join(f"{word} {number:x}" for word, number in synset.words)
    pointers = "000" if synset.head is None else f"001 & {offsets[synset.head]:08d} a 0000"
    start = f"{offset:08d} {synset.lexicographer:02d} {synset.pos} {len(synset.words):02x}"
    return f"{start} {words} {pointers} | a gloss  \n"


def sentence(text: str, name: str = "one") -> MarkedSentence:
    """Read ``gook book=n1 dill``: book is a noun in its second sense; ``book_bill=n0`` are two."""
    words: list[str] = []
    marked = []
    for part in text.split():
        word, _, mark = part.partition("=")
        places = tuple(range(len(words), len(words) + len(word.split("_"))))
        words += word.split("_")
        if mark:
            senses = tuple(KEYS[word, mark[0]][int(number)] for number in mark[1:])
            marked.append(MarkedWord(word, mark[0], senses, places))
    return MarkedSentence(tuple(words), tuple(marked), name)


def sentences(number: int, seed: int = 0, texts: int = 4) -> list[MarkedSentence]:
    """Draw sentences in which the sense of ``bark`` and ``book`` goes with the words around it."""
    draws = np.random.default_rng(seed)
    around = (("gook", "dump", "kill"), ("fill", "gump", "look"))
    found = []
    for place in range(number):
        sense = int(draws.integers(2))
        word = ("bark", "book")[int(draws.integers(2))]
        others = [str(other) for other in draws.choice(around[sense], int(draws.integers(1, 5)))]
        others.insert(int(draws.integers(len(others) + 1)), f"{word}=n{sense}")
        found.append(sentence(" ".join(others), f"text {place % texts}"))
    return found
