"""Texts that compare things: which costs more than which, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

ADJECTIVES = (
    *("red", "blue", "green", "black", "white", "brown", "pink", "grey", "old", "new"),
    *("big", "small", "long", "short", "heavy", "light", "round", "flat", "clean", "dirty"),
)
NOUNS = (
    *("lamp", "chair", "table", "clock", "book", "bag", "hat", "cup", "ring", "coat"),
    *("shoe", "box", "knife", "plate", "glass", "bed", "door", "watch", "shirt", "bottle"),
)

YES, NO, UNKNOWN = range(3)

# Every fifth diagonal of the table of adjectives and nouns is a split's own, so that each split
# knows all words, and no name of another one.
_DIAGONALS = {"train": (2, 3, 4), "validation": (1,), "test": (0,)}
_EVERY = 5

# Things of a chain that are never asked about: what costs the most and the least.
_ENDS = 2
MOST_THINGS = 8


@dataclass(frozen=True)
class Comparison:
    """A text about two chains of things, and a question about the first of two things."""

    facts: tuple[tuple[str, str], ...]  # in the order of the text; the first of each costs more
    first: str
    second: str
    steps: int  # links between the two, or between their indices where each has its own chain
    label: int  # 0 if the first costs more, 1 if the second does, 2 if nobody knows

    @property
    def question(self) -> str:
        """The question as a sentence."""
        return f"does {self.first} cost more than {self.second}?"

    @property
    def text(self) -> str:
        """The facts as sentences, then the question."""
        facts = [f"{more} costs more than {less}." for more, less in self.facts]
        return " ".join([*facts, self.question])


def check_chains(steps: Sequence[int], things: int, sizes: Mapping[str, int]) -> None:
    """Refuse texts that cannot be drawn, and numbers of them that cannot be balanced."""
    if not steps or min(steps) < 1 or len(set(steps)) != len(steps):
        raise ValueError(f"steps must be different numbers from 1, got {tuple(steps)}")
    least = max(steps) + 1 + _ENDS
    if not least <= things <= MOST_THINGS:
        wanted = f"from {least} to {MOST_THINGS} for {max(steps)} steps"
        raise ValueError(f"things must be {wanted}, got {things}")
    cells = 3 * len(steps)
    for name, size in sizes.items():
        if size < 1 or size % cells:
            raise ValueError(f"{name} must be a multiple of {cells} above 0, got {size}")


@lru_cache(maxsize=8)  # runs that follow each other ask for the same
def draw_comparisons(
    split: str, size: int, steps: tuple[int, ...], things: int, seed: int
) -> tuple[Comparison, ...]:
    """Draw texts, equally many for each number of steps and each answer."""
    source = random.Random(f"{split} {seed}")  # a text is hashed the same way everywhere
    cells = list(product(steps, (YES, NO, UNKNOWN)))
    drawn = [
        _draw(source, split, things, count, label, swapped=number % 2 == 1)
        for count, label in cells
        for number in range(size // len(cells))
    ]
    source.shuffle(drawn)
    return tuple(drawn)


def _draw(
    source: random.Random, split: str, things: int, steps: int, label: int, *, swapped: bool
) -> Comparison:
    """Draw a text; of unknown things the first is the lower one where ``swapped`` says so."""
    names = _draw_names(source, split, 2 * things)
    chains = names[:things], names[things:]
    facts = [fact for chain in chains for fact in pairwise(chain)]
    source.shuffle(facts)
    upper = source.randint(1, things - _ENDS - steps)
    pair = chains[0][upper], chains[label == UNKNOWN][upper + steps]
    first, second = reversed(pair) if label == NO or (label == UNKNOWN and swapped) else pair
    return Comparison(tuple(facts), first, second, steps, label)


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
