"""The words of the agreement task, one set for training and another for testing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

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


TRAINING = Lexicon(
    things=Kind(
        nouns=(
            *_regular("basket", "bench", "bicycle", "blanket", "bottle", "box", "brush", "bucket"),
            *_regular("candle", "chair", "curtain", "diary", "envelope", "hammer", "jacket"),
            *_regular(
                "ladder", "lamp", "letter", "mirror", "piano", "picture", "pillow", "suitcase"
            ),
            *_regular("telephone", "ticket", "toy", "umbrella", "wheel", "window"),
            ("knife", "knives"),
            ("shelf", "shelves"),
        ),
        adjectives=("dusty", "dirty", "old", "cheap", "brand new", "beautiful"),
        participles=("been moved", "been sold", "disappeared", "been found"),
    ),
    people=Kind(
        nouns=(
            *_regular("artist", "baker", "boy", "dancer", "doctor", "farmer", "girl", "lawyer"),
            *_regular("neighbor", "nurse", "pilot", "secretary", "singer", "student", "teacher"),
            *_regular("waiter", "witness"),
            ("child", "children"),
            ("man", "men"),
        ),
        adjectives=("tired", "hungry", "happy", "polite", "nervous", "friendly"),
        participles=("gone home", "fallen asleep", "left early", "been invited"),
    ),
    prepositions=("near", "behind", "beside", "in front of"),
    verbs=(*_BE, ("seems", "seem"), ("looks", "look")),
)

TESTING = Lexicon(
    things=Kind(
        nouns=(
            *_regular("bag", "battery", "book", "bowl", "camera", "clock", "coat", "cup", "desk"),
            *_regular("dish", "door", "guitar", "hat", "key", "map", "plate", "table", "trophy"),
            *_regular("watch"),
            ("loaf", "loaves"),
        ),
        adjectives=("expensive", "heavy", "wet", "ugly", "clean"),
        participles=("been stolen", "been removed", "vanished"),
    ),
    people=Kind(
        nouns=(
            *_regular("actor", "actress", "cook", "driver", "guest", "judge", "lady", "mechanic"),
            *_regular("sailor", "tailor", "visitor", "writer"),
            ("thief", "thieves"),
            ("woman", "women"),
        ),
        adjectives=("angry", "sad", "calm", "busy", "thirsty"),
        participles=("gone away", "waited for hours", "arrived late"),
    ),
    prepositions=("next to", "across from", "close to", "opposite"),
    verbs=(*_BE, ("appears", "appear"), ("remains", "remain")),
)
