"""Subject-verb agreement across attractors: text that is made here.

Choose the form of the verb that fits: "The keys next to the cabinet is/are wet". An attractor is a
noun phrase between the subject and its verb; there are one to three. In the validation split all of
them have the other number than the subject: whoever follows the nearest noun is always wrong, and
whoever follows the majority is right by half with one attractor and never with more. In half of the
training split they are like that, and in half all have the subject's number, so that the nearest
noun says nothing about the verb. Only the subject does.

The sentence names both forms, the singular first; the label is the subject's number, and
``attractors`` the number of attractors. Both are balanced exactly, in every combination. Nouns,
adjectives, participles, prepositions and full verbs of one split are not in the other; is, was and
has are in both.

Reference:
    Linzen, Dupoux and Goldberg, *Assessing the Ability of LSTMs to Learn Syntax-Sensitive
    Dependencies*, TACL 2016.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

from examples.tasks.base import Splits, Task, label_rows
from examples.tasks.metrics import score_sizes

NUM_ATTRACTORS = (1, 2, 3)
LABELS = ("singular", "plural")
# Subject numbers × numbers of attractors; in training, attractors that agree or do not.
_CELLS = {"train": 12, "validation": 6}
_MAX_ROWS = 36_000  # far below what the words can say, so that every draw soon is a new one


def read_agreement(
    data_dir: Path | None, names: Sequence[str], *, train: int, validation: int, seed: int
) -> Splits:
    """Make the splits, each the same whatever the size of the other; nothing is read."""
    sizes = {"train": train, "validation": validation}
    for name, size in sizes.items():
        if not (0 < size <= _MAX_ROWS and size % _CELLS[name] == 0):
            wanted = f"a multiple of {_CELLS[name]} up to {_MAX_ROWS}"
            raise ValueError(f"{name} must be {wanted}, got {size}")
    makers = {"train": (TRAINING, (True, False)), "validation": (TESTING, (True,))}
    return {
        name: label_rows(
            _draw(makers[name][0], sizes[name], f"{name} {seed}", makers[name][1]), LABELS
        )
        for name in names
    }


def agreement_task(*, train: int = 720, validation: int = 600, seed: int = 0) -> Task:
    """The task with so many sentences, multiples of 12 and of 6; the seed decides what is drawn."""
    read = partial(read_agreement, train=train, validation=validation, seed=seed)
    return Task("agreement", "classification", read, score_sizes, ("accuracy",), by="attractors")


def _draw(
    lexicon: Lexicon, size: int, seed: str, conflicts: tuple[bool, ...]
) -> list[dict[str, Any]]:
    """Draw different sentences, equally many for each combination of properties."""
    source = random.Random(seed)  # a text as seed is hashed the same way everywhere
    cells = list(product(NUM_ATTRACTORS, (False, True), conflicts))
    rows: list[dict[str, Any]] = []
    for attractors, plural, conflict in cells:
        sentences: dict[str, None] = {}
        while len(sentences) < size // len(cells):
            sentences[_sentence(source, lexicon, attractors, plural, conflict)] = None
        rows.extend(
            {"text": sentence, "attractors": attractors, "label": int(plural)}
            for sentence in sentences
        )
    source.shuffle(rows)
    return rows


def _sentence(
    source: random.Random, lexicon: Lexicon, attractors: int, plural: bool, conflict: bool
) -> str:
    """Draw a sentence with both forms of its verb."""
    kind = source.choice((lexicon.things, lexicon.people))
    subject = source.choice(kind.nouns)
    others = source.sample([noun for noun in lexicon.nouns if noun != subject], attractors)
    prepositions = source.sample(lexicon.prepositions, attractors)
    words = [f"The {subject[plural]}"]
    for preposition, noun in zip(prepositions, others, strict=True):
        words.append(f"{preposition} the {noun[plural != conflict]}")
    verb = source.choice((*lexicon.verbs, HAVE))
    complements = kind.participles if verb == HAVE else kind.adjectives
    words += ["/".join(verb), f"{source.choice(complements)}."]
    return " ".join(words)


Forms: TypeAlias = tuple[str, str]
"""A noun's or verb's singular and plural."""


@dataclass(frozen=True)
class Kind:
    """Nouns of one kind and what can be said of them."""

    nouns: tuple[Forms, ...]
    adjectives: tuple[str, ...]  # what they can be, or seem to be
    participles: tuple[str, ...]  # what they can have done, or had done to them


@dataclass(frozen=True)
class Lexicon:
    """Words of one split."""

    things: Kind
    people: Kind
    prepositions: tuple[str, ...]  # between two nouns
    verbs: tuple[Forms, ...]  # that take an adjective: those of all splits, and the split's own

    @property
    def nouns(self) -> tuple[Forms, ...]:
        """All nouns."""
        return self.things.nouns + self.people.nouns


HAVE: Forms = ("has", "have")
_BE: tuple[Forms, ...] = (("is", "are"), ("was", "were"))


def _regular(*singulars: str) -> tuple[Forms, ...]:
    """Form plurals: witness, brush, box and bench take -es, diary takes -ies, others -s."""
    return tuple((singular, _plural(singular)) for singular in singulars)


def _plural(singular: str) -> str:
    if singular.endswith(("s", "sh", "ch", "x")):
        return f"{singular}es"
    if singular.endswith("y") and singular[-2] not in "aeiou":
        return f"{singular[:-1]}ies"
    return f"{singular}s"


def _kind(nouns: str, irregular: tuple[Forms, ...], adjectives: str, participles: str) -> Kind:
    """A kind of nouns; what is said of them is parted by commas."""
    forms = (*_regular(*nouns.split()), *irregular)
    return Kind(forms, tuple(adjectives.split(", ")), tuple(participles.split(", ")))


TRAINING = Lexicon(
    things=_kind(
        "basket bench bicycle blanket bottle box brush bucket candle chair curtain diary envelope "
        "hammer jacket ladder lamp letter mirror piano picture pillow suitcase telephone ticket "
        "toy umbrella wheel window",
        (("knife", "knives"), ("shelf", "shelves")),
        "dusty, dirty, old, cheap, brand new, beautiful",
        "been moved, been sold, disappeared, been found",
    ),
    people=_kind(
        "artist baker boy dancer doctor farmer girl lawyer neighbor nurse pilot secretary singer "
        "student teacher waiter witness",
        (("child", "children"), ("man", "men")),
        "tired, hungry, happy, polite, nervous, friendly",
        "gone home, fallen asleep, left early, been invited",
    ),
    prepositions=("near", "behind", "beside", "in front of"),
    verbs=(*_BE, ("seems", "seem"), ("looks", "look")),
)

TESTING = Lexicon(
    things=_kind(
        "bag battery book bowl camera clock coat cup desk dish door guitar hat key map plate table "
        "trophy watch",
        (("loaf", "loaves"),),
        "expensive, heavy, wet, ugly, clean",
        "been stolen, been removed, vanished",
    ),
    people=_kind(
        "actor actress cook driver guest judge lady mechanic sailor tailor visitor writer",
        (("thief", "thieves"), ("woman", "women")),
        "angry, sad, calm, busy, thirsty",
        "gone away, waited for hours, arrived late",
    ),
    prepositions=("next to", "across from", "close to", "opposite"),
    verbs=(*_BE, ("appears", "appear"), ("remains", "remain")),
)
