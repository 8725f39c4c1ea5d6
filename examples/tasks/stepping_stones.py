"""Stepping stones: which of two things costs more, when other things lie between them.

There are two chains of things, each of which costs more than the next. All sentences "A costs more
than B." of both stand in random order. The question is about two things that are so many steps
apart: in one chain, where the answer is yes or no, or one in each, where it is unknown. Nobody is
asked about the ends of a chain, so that each thing asked about once costs more and once costs less.
Answers and steps are balanced exactly.

A thing has an adjective and a noun that nothing else in its text has. All splits share these words,
but a name of one split is in no other.

Reference:
    Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*, NeurIPS
    2022, whose figure 2 joins "book cost more than pencil" and "book cost less than computer";
    Bengio et al., *Curriculum Learning*, ICML 2009, for lessons.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise, product
from pathlib import Path
from typing import NamedTuple

from datasets import Dataset

from examples.tasks.base import Task, label_rows, tag_rows
from examples.tasks.metrics import OUTSIDE, score_sizes, score_spans, write_tags
from examples.tasks.tagging import bio_tags

ADJECTIVES = tuple(
    "red blue green black white brown pink grey old new "
    "big small long short heavy light round flat clean dirty".split()
)
NOUNS = tuple(
    "lamp chair table clock book bag hat cup ring coat "
    "shoe box knife plate glass bed door watch shirt bottle".split()
)

LABELS = ("yes", "no", "unknown")
YES, NO, UNKNOWN = range(3)

# Every fifth diagonal of the table of adjectives and nouns is a split's own, so that each split
# knows all words, and no name of another one.
_DIAGONALS = {"train": (2, 3, 4), "validation": (1,), "test": (0,)}
_EVERY = 5

# What a thing can be to those asked about: at most one of them, or one beside itself.
_TYPES = {
    "first": "is-first below-first above-first".split(),
    "both": (
        "is-second below-second above-second is-first is-first+below-second is-first+above-second "
        "below-first below-first+is-second above-first above-first+is-second"
    ).split(),
}
THINGS = 7  # of a chain: the least for four steps between things that are not its ends


class Comparison(NamedTuple):
    """A text about two chains of things, and a question about the first of two things."""

    facts: Sequence[tuple[str, str]]  # in the order of the text; the first of each costs more
    first: str
    second: str
    steps: int  # links between the two, or between their indices where each has its own chain
    label: int

    @property
    def text(self) -> str:
        """The facts as sentences, then the question."""
        facts = [f"{more} costs more than {less}." for more, less in self.facts]
        return " ".join([*facts, f"does {self.first} cost more than {self.second}?"])


@lru_cache(maxsize=8)  # runs that follow each other ask for the same
def draw_comparisons(
    split: str, size: int, steps: tuple[int, ...], seed: int
) -> tuple[Comparison, ...]:
    """Draw texts, equally many for each number of steps and each answer."""
    source = random.Random(f"{split} {seed}")  # a text is hashed the same way everywhere
    cells = list(product(steps, range(len(LABELS)), range(size // (len(steps) * len(LABELS)))))
    drawn = [_draw(source, split, count, label, number % 2 == 1) for count, label, number in cells]
    source.shuffle(drawn)
    return tuple(drawn)


def _draw(source: random.Random, split: str, steps: int, label: int, swapped: bool) -> Comparison:
    """Draw a text; of unknown things the first is the lower one where ``swapped`` says so."""
    names = _draw_names(source, split, 2 * THINGS)
    chains = names[:THINGS], names[THINGS:]
    facts = [fact for chain in chains for fact in pairwise(chain)]
    source.shuffle(facts)
    upper = source.randint(1, THINGS - 2 - steps)
    pair = chains[0][upper], chains[label == UNKNOWN][upper + steps]
    first, second = reversed(pair) if label == NO or (label == UNKNOWN and swapped) else pair
    return Comparison(facts, first, second, steps, label)


def _draw_names(source: random.Random, split: str, count: int) -> list[str]:
    """Draw names that share neither an adjective nor a noun."""
    while True:
        free = list(range(len(NOUNS)))
        source.shuffle(free)
        names = []
        for row in source.sample(range(len(ADJECTIVES)), count):
            mine = (noun for noun in free if (noun - row) % _EVERY in _DIAGONALS[split])
            column = next(mine, None)
            if column is None:  # all of its nouns are taken: begin again
                break
            free.remove(column)
            names.append(f"{ADJECTIVES[row]} {NOUNS[column]}")
        if len(names) == count:
            return names


def comparisons_task(
    name: str = "steppingstones",
    *,
    steps: tuple[int, ...] = (1, 2, 3, 4),
    train: int = 24_000,  # texts, a multiple of 3 times the number of steps
    validation: int = 600,
    test: int = 1200,
    seed: int = 0,
    lesson: str | None = None,  # "first" or "both"
) -> Task:
    """Tell whether one thing costs more than another.

    A lesson before that tags, in the same texts, the things asked about, ``is-first``, and their
    neighbours, ``below-first`` or ``above-first``: of the first of them, or of both, where
    ``below-first+is-second`` answers a question of one step.
    """
    most = THINGS - 3  # between things that are not at the ends of a chain
    if not {*steps} or not {*steps} <= {*range(1, most + 1)} or len({*steps}) < len(steps):
        raise ValueError(f"steps must be different numbers from 1 to {most}, got {steps}")
    sizes = {"train": train, "validation": validation, "test": test}
    for split, size in sizes.items():
        if size < 1 or size % (3 * len(steps)):
            wanted = f"a multiple of {3 * len(steps)} above 0"
            raise ValueError(f"{split} must be {wanted}, got {size}")

    def read(_: Path | None, split: str) -> Dataset:
        drawn = draw_comparisons(split, sizes[split], steps, seed)
        if lesson is None:
            rows = [{"text": x.text, "steps": x.steps, "label": x.label} for x in drawn]
            return label_rows(rows, LABELS)
        tagged = [(x.text.split(), _tags(x, lesson)) for x in drawn]
        return tag_rows(tagged, bio_tags(_TYPES[lesson]))

    if lesson is not None:
        return Task(name, "tagging", read, score_spans, ("f1", "precision", "recall"), (*sizes,))
    return Task(name, "classification", read, score_sizes, ("accuracy",), (*sizes,), by="steps")


def _tags(text: Comparison, lesson: str) -> list[str]:
    """The tag of each word."""
    asked = {"first": text.first} | ({"second": text.second} if lesson == "both" else {})
    tags: list[str] = []
    for more, less in text.facts:
        spans = []
        for own, side, start in ((more, "above", 0), (less, "below", 5)):
            roles = [
                f"is-{which}" if own == thing else f"{side}-{which}"
                for which, thing in asked.items()
                if thing in (more, less)
            ]
            spans += [("+".join(roles), start, start + 2)] if roles else []
        tags += write_tags(spans, 7)  # words of a sentence
    return tags + [OUTSIDE] * 8  # of the question
