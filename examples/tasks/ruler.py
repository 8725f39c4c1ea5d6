"""RULER's 13 tasks, written anew from their description, with texts that fill a given length.

Prose is WikiText-2's, and words are its words; questions are SQuAD's, and, in the place of
HotpotQA's, those of MultiRC, whose answers take several sentences.

Reference:
    Hsieh et al., *RULER: What's the Real Context Size of Your Long-Context Language Models?*, COLM
    2024, section 3 and appendix B.
"""

from __future__ import annotations

import random
import re
import string
import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

from examples.tasks import get_task

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
VALUES, HOPS, COMMON, FREQUENT = 4, 4, 10, 3


class Prompt(NamedTuple):
    """A text with its question, how an answer begins, and the strings that it must hold.

    ``every`` tells whether all of them count, or one is enough; ``tokens`` is how long answers are.
    """

    text: str
    start: str
    answers: tuple[str, ...]
    every: bool = True
    tokens: int = 128

    def score(self, said: str) -> float:
        """Return the share of the strings that are said, in letters of either case."""
        found = [answer.lower() in said.lower() for answer in self.answers]
        return sum(found) / len(found) if self.every else float(any(found))


class Draw(NamedTuple):
    """What a prompt is drawn from: numbers, pieces of text, how deep, and files."""

    random: random.Random
    size: int
    depth: float
    data_dir: Path | None


Task: TypeAlias = Callable[[Draw], Prompt]
Count: TypeAlias = Callable[[Prompt], int]  # its tokens


def fit(
    task: Task, length: int, count: Count, seed: str, depth: float, data_dir: Path | None
) -> Prompt:
    """Return the longest prompt of a task that has at most so many tokens."""

    def build(size: int) -> Prompt:
        return task(Draw(random.Random(seed), size, depth, data_dir))

    low, high = 1, 2
    if count(build(low)) > length:
        raise ValueError(f"length must have room for the task, got {length}")
    while count(build(high)) <= length:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(build(middle)) <= length else (low, middle)
    return build(low)


@lru_cache(1)
def read_prose(data_dir: Path | None) -> tuple[list[str], list[str]]:
    """Return sentences of articles, and all words of four to nine letters."""
    articles = get_task("wikitext2").load(data_dir, ["validation"])["validation"]["text"]
    sentences = re.split(r"(?<=[.!?])\s+", " ".join(articles))
    words = {word for text in articles for word in re.findall(r"\b[a-z]{4,9}\b", text)}
    return sentences, sorted(words)


def needles(kind: str, hay: str, keys: int = 1, values: int = 1, asked: int = 1) -> Task:
    """Return a task: what are the special numbers, or names, of some words?

    Hay is noise, prose, or other needles alone.
    """

    def task(given: Draw) -> Prompt:
        draw = given.random
        alone = hay == "needles"
        prose, words = read_prose(given.data_dir)
        found: dict[str, list[str]] = {}
        while len(found) < keys + (given.size if alone else 0):
            name = value(draw, words, "name" if alone and kind == "name" else "words")
            found[name] = [value(draw, words, kind) for _ in range(values)]
        pairs = [(name, own) for name, every in found.items() for own in every]
        said = [f"One of the special magic {kind}s for {name} is: {own}." for name, own in pairs]
        start = draw.randrange(len(prose))
        filler = [NOISE] if hay == "noise" else prose[start:] + prose[:start]
        filler = said[1:] if alone else [*islice(cycle(filler), given.size)]
        said = said[:1] if alone else said
        text = hide(said, filler, [given.depth, *(draw.random() for _ in said[1:])])
        wanted = [*found][:asked]
        answers = [own for name in wanted for own in found[name]]
        many, verb = ("s", "are") if len(answers) > 1 else ("", "is")
        which = f"the special magic {kind}{many} for {', '.join(wanted)}"
        question = f"What {verb} {which} in the text above?"
        start = f"In the text above, {which} {verb}"
        return Prompt(f"{text}\n\n{question}", start, tuple(answers), tokens=40 * len(answers))

    return task


def value(draw: random.Random, words: Sequence[str], kind: str) -> str:
    """Draw a number, a name that is in no text, or two words."""
    if kind == "number":
        return str(draw.randrange(1_000_000, 10_000_000))
    if kind == "name":
        return str(uuid.UUID(int=draw.getrandbits(128), version=4))
    return "-".join(draw.sample(words, 2))


def hide(said: Sequence[str], filler: Sequence[str], depths: Sequence[float]) -> str:
    """Put sentences at depths of a text, from 0 to 1."""
    parts = [*filler]
    for depth, sentence in sorted(zip(depths, said, strict=True), reverse=True):
        parts.insert(round(depth * len(filler)), sentence)
    return " ".join(parts)


def variables(given: Draw) -> Prompt:
    """Which variables have a value, that is handed on from one to the next?"""
    draw = given.random
    names = ["".join(draw.choices(string.ascii_uppercase, k=5)) for _ in range(HOPS + 1)]
    value = draw.randrange(10_000, 100_000)
    said = [f"VAR {names[0]} = {value}."]
    said += [f"VAR {name} = VAR {last}." for last, name in pairwise(names)]
    places = sorted(draw.random() for _ in said)
    question = f"Which variables have the value {value} in the text above? There are {HOPS + 1}."
    text = f"{hide(said, [NOISE] * given.size, places)}\n\n{question}"
    return Prompt(text, f"The variables that have the value {value} are", tuple(names), tokens=40)


def common_words(given: Draw) -> Prompt:
    """Which ten words stand ten times each in a list, where others stand once?"""
    words = given.random.sample(read_prose(given.data_dir)[1], COMMON + given.size)
    listed = words[:COMMON] * 10 + words[COMMON:]
    given.random.shuffle(listed)
    text = " ".join(f"{number}. {word}" for number, word in enumerate(listed, start=1))
    question = f"What are the {COMMON} most common words in the list above?"
    start = f"The {COMMON} most common words in the list are"
    return Prompt(f"{text}\n\n{question}", start, tuple(words[:COMMON]))


def frequent_words(given: Draw) -> Prompt:
    """Which three made-up words are most frequent, where frequencies fall with their rank?"""
    draw = given.random
    words = ["".join(draw.choices(string.ascii_lowercase, k=6)) for _ in range(50)]
    weights = [rank**-2.0 for rank in range(1, 51)]
    listed = draw.choices(words, weights, k=20 + 5 * given.size)
    question = f"What are the {FREQUENT} most frequent words in the coded text above?"
    start = f"The {FREQUENT} most frequent words are"
    text = f"{' '.join(listed)}\n\n{question}"
    ranked = sorted(words, key=listed.count, reverse=True)
    return Prompt(text, start, tuple(ranked[:FREQUENT]), tokens=50)


def questions(name: str) -> Task:
    """Return a task: what is the answer to a question about one of many paragraphs?"""

    def task(given: Draw) -> Prompt:
        asked = read_questions(name, given.data_dir)
        question, home, answers = asked[given.random.randrange(len(asked))]
        others = sorted({context for _, context, _ in asked} - {home})
        chosen = [*islice(cycle(given.random.sample(others, len(others))), given.size)]
        chosen.insert(round(given.depth * given.size), home)
        documents = [f"Document {number}:\n{x}" for number, x in enumerate(chosen, start=1)]
        text = "\n\n".join(documents)
        text += f"\n\nAnswer the question from the documents, in a few words. {question}"
        return Prompt(text, "Answer:", answers, every=False, tokens=32)

    return task


@lru_cache(2)
def read_questions(name: str, data_dir: Path | None) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return questions, each with its paragraph and its answers."""
    rows = get_task(name).load(data_dir, ["validation"])["validation"]
    if name == "squad":
        return [(row["question"], row["context"], tuple(row["answers"]["text"])) for row in rows]
    right: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        question, _, answer = row["text_pair"].rpartition("? ")
        if row["label"] == 1:
            right.setdefault((f"{question}?", row["text"]), []).append(answer)
    return [(question, text, tuple(own)) for (question, text), own in right.items()]


RULER: dict[str, Task] = {
    "needle, noise": needles("number", "noise"),
    "needle, prose": needles("number", "prose"),
    "needle, name": needles("name", "prose"),
    "keys, 4": needles("number", "prose", keys=VALUES),
    "keys, all": needles("number", "needles"),
    "keys, names": needles("name", "needles"),
    "values, 4": needles("number", "prose", values=VALUES),
    "queries, 4": needles("number", "prose", keys=VALUES, asked=VALUES),
    "variables": variables,
    "common words": common_words,
    "frequent words": frequent_words,
    "questions": questions("squad"),
    "questions, sentences": questions("multirc"),
}
