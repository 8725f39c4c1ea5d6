"""Random trees, marked sentences, a small WordNet, and models whose heads give what a test says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from jat_graph.probes import Sentence, WordReader
from tests.data.support import STEMS, tiny_tokenizer
from tests.hf.models import tiny_model

RELATIONS = ("nsubj", "obj", "det", "nmod:poss")
TAGS = ("NOUN", "VERB", "DET", "PUNCT")

MapsOf = Callable[[Sequence[str]], Tensor]  # of a sentence's words: [C, W, W]


def random_sentence(length: int, seed: int, tags: Sequence[str] = TAGS) -> Sentence:
    """Return words that the tiny tokenizer knows, each on one that came before it in some order."""
    draw = np.random.default_rng(seed)
    order, heads = draw.permutation(length).tolist(), [-1] * length
    for index in range(1, length):
        heads[order[index]] = order[draw.integers(index)]
    return Sentence(
        tuple(draw.choice(STEMS, length).tolist()),
        tuple(draw.choice(tags, length).tolist()),
        tuple(heads),
        tuple("root" if head < 0 else str(draw.choice(RELATIONS)) for head in heads),
    )


def random_sentences(number: int, seed: int = 0, most: int = 12, least: int = 1) -> list[Sentence]:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(least, most + 1, number).tolist()
    return [random_sentence(length, 1000 * seed + row) for row, length in enumerate(lengths)]


def path_to_root(sentence: Sentence, word: int) -> list[int]:
    path = [word]
    while sentence.heads[path[-1]] != -1:
        path.append(sentence.heads[path[-1]])
    return path


def slow_distance(sentence: Sentence, i: int, k: int) -> int:
    """Climb from both words to the first that is above both."""
    up, other = path_to_root(sentence, i), path_to_root(sentence, k)
    return min(up.index(word) + other.index(word) for word in up if word in other)


def exact_embedding(sentence: Sentence, width: int) -> Tensor:
    """Return a unit step in a new direction for each edge of a tree.

    Coenen et al. 2019, theorem 1.1: squared distances are then the tree's.
    """
    points = torch.zeros(len(sentence), width, dtype=torch.float64)
    for word in range(len(sentence)):
        points[word, path_to_root(sentence, word)[:-1]] = 1.0
    return points


def tiny(folder: Path, model: PreTrainedModel | str = "bert") -> WordReader:
    own = tiny_model(model) if isinstance(model, str) else model
    return WordReader(own, tiny_tokenizer(), folder)


def planted(folder: Path, heads: int, maps_of: MapsOf, name: str = "bert") -> WordReader:
    """Return a reader of one layer that gives these maps, between two special tokens."""
    reader = tiny(folder, name)
    reader.model.config.update({"num_hidden_layers": 1, "num_attention_heads": heads})

    def give(_: Any, __: Any, inputs: Any, outputs: Any) -> Any:
        rows = inputs["input_ids"]
        maps = torch.zeros(len(rows), heads, *rows.shape[1:] * 2)
        for own, ids in zip(maps, rows, strict=True):
            own[:, 1:-1, 1:-1] = maps_of(reader.tokenizer.convert_ids_to_tokens(ids[1:-1]))
        outputs.attentions = (maps,)
        return outputs

    reader.model.register_forward_hook(give, with_kwargs=True)
    return reader


def plant_states(reader: WordReader, states_of: Callable[[Sequence[str]], Tensor]) -> WordReader:
    """Let a reader find these states of words, [W, D], after each layer."""

    def give(_: Any, __: Any, inputs: Any, outputs: Any) -> Any:
        rows = inputs["input_ids"]
        states = torch.zeros(*rows.shape, reader.model.config.hidden_size)
        for own, ids in zip(states, rows, strict=True):
            own[1:-1] = states_of(reader.tokenizer.convert_ids_to_tokens(ids[1:-1]))
        outputs.hidden_states = (states,) * len(outputs.hidden_states)
        return outputs

    reader.model.register_forward_hook(give, with_kwargs=True)
    return reader


def random_maps(heads: int, seed: int) -> MapsOf:
    draw = torch.Generator().manual_seed(seed)
    return lambda words: torch.rand(heads, len(words), len(words), generator=draw)


def minilm(folder: Path, path: str) -> WordReader:
    kinds = AutoModel, AutoTokenizer
    return WordReader(*(kind.from_pretrained(path) for kind in kinds), folder)


class Synset(NamedTuple):
    """A line of a data file of WordNet."""

    pos: str  # "s" for satellites, which stand in the file of adjectives
    lexicographer: int
    words: tuple[tuple[str, int], ...]  # with their numbers
    head: int | None = None  # of a satellite, its index in the list


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
AROUND = (("gook", "dump", "kill"), ("fill", "gump", "look"))  # the senses of bark and book


def write_wordnet(folder: Path, version: str = "3.0") -> Path:
    """Write the files that Debian's package has."""
    folder.mkdir(parents=True, exist_ok=True)
    for pos, name in {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}.items():
        (folder / f"{name}.exc").write_text("", encoding="utf-8")
        offsets: dict[int, int] = {}
        lemmas: dict[str, list[int]] = {}
        text = f"  1 WordNet {version} Copyright\n"
        for index, own in enumerate(SYNSETS):
            if own.pos.replace("s", "a") != pos:
                continue
            offsets[index] = len(text)
            for word, _ in own.words:
                lemmas.setdefault(word.partition("(")[0], []).append(len(text))
            named = " ".join(f"{word} {number:x}" for word, number in own.words)
            above = "000" if own.head is None else f"001 & {offsets[own.head]:08d} a 0000"
            start = f"{len(text):08d} {own.lexicographer:02d} {own.pos} {len(own.words):02x}"
            text += f"{start} {named} {above} | a gloss  \n"
        (folder / f"data.{name}").write_text(text, encoding="utf-8")
        lines = [
            f"{lemma} {pos} {len(some)} 0 {len(some)} 0 {' '.join(f'{o:08d}' for o in some)}  \n"
            for lemma, some in sorted(lemmas.items())
        ]
        (folder / f"index.{name}").write_text("  1 notice\n" + "".join(lines), encoding="utf-8")
    return folder


@dataclass
class MarkedWord:
    """As corpora give it."""

    lemma: str
    pos: str
    senses: tuple[str, ...]
    indices: tuple[int, ...]


@dataclass
class MarkedSentence:
    """As corpora give it."""

    words: tuple[str, ...]
    marked: tuple[MarkedWord, ...]
    text: str


def marked_sentence(text: str, name: str = "one") -> MarkedSentence:
    """Read ``gook book=n1 dill``: book is a noun in its second sense; ``book_bill=n0`` are two."""
    own: list[str] = []
    marked = []
    for part in text.split():
        word, _, mark = part.partition("=")
        indices = tuple(range(len(own), len(own) + len(word.split("_"))))
        own += word.split("_")
        if mark:
            senses = tuple(KEYS[word, mark[0]][int(number)] for number in mark[1:])
            marked.append(MarkedWord(word, mark[0], senses, indices))
    return MarkedSentence(tuple(own), tuple(marked), name)


def marked_sentences(number: int, seed: int = 0, texts: int = 4) -> list[MarkedSentence]:
    """Draw sentences in which the sense of ``bark`` and ``book`` goes with the words around it."""
    draws = np.random.default_rng(seed)
    found = []
    for index in range(number):
        sense = int(draws.integers(2))
        word = ("bark", "book")[int(draws.integers(2))]
        others = [str(other) for other in draws.choice(AROUND[sense], int(draws.integers(1, 5)))]
        others.insert(int(draws.integers(len(others) + 1)), f"{word}=n{sense}")
        found.append(marked_sentence(" ".join(others), f"text {index % texts}"))
    return found
