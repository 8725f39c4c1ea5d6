"""Subject-verb agreement across attractors: text that the library makes itself."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.base import ClassificationTask
from jat_graph.tasks.lexicon import HAVE, TESTING, TRAINING, Lexicon

if TYPE_CHECKING:
    from datasets import Dataset

NUM_ATTRACTORS = (1, 2, 3)

# Subject numbers x numbers of attractors; in training, attractors that agree or do not.
_TRAIN_CELLS = 12
_VALIDATION_CELLS = 6
_MAX_ROWS = 36_000  # far below what the words can say, so that every draw soon is a new one


@dataclass(frozen=True, kw_only=True)
class AgreementTask(ClassificationTask):
    """Choose the form of the verb that fits: "The keys next to the cabinet is/are wet".

    An attractor is a noun phrase between the subject and its verb; there are one to three. In the
    validation split all of them have the other number than the subject: whoever follows the nearest
    noun is always wrong, and whoever follows the majority is right by half with one attractor and
    never with more. In half of the training split they are like that, and in half all have the
    subject's number, so that the nearest noun (or its opposite) says nothing about the verb. Only
    the subject does.

    The sentence names both forms, the singular first; the label is the subject's number, and
    ``attractors`` the number of attractors. Both are balanced exactly, in every combination. Nouns,
    adjectives, participles, prepositions and full verbs of one split are not in the other; is, was
    and has are in both.
    ``validation_1`` to ``validation_3`` are the validation split by number of attractors.

    Args:
        train_size: Sentences to train on, a multiple of 12. (default: 720)
        validation_size: Sentences to validate on, a multiple of 6. (default: 600)
        seed: Decides what is drawn. (default: 0)

    Reference:
        Linzen, Dupoux and Goldberg, *Assessing the Ability of LSTMs to Learn Syntax-Sensitive
        Dependencies*, TACL 2016.
    """

    name: str = "agreement"
    text_columns: tuple[str, ...] = ("sentence",)
    labels: tuple[str, ...] | None = ("singular", "plural")
    splits: tuple[str, ...] = (
        "train",
        "validation",
        *(f"validation_{count}" for count in NUM_ATTRACTORS),
    )
    primary_metric: str = "accuracy"
    train_size: int = 720
    validation_size: int = 600
    seed: int = 0

    def __post_init__(self) -> None:
        _check_size("train_size", self.train_size, _TRAIN_CELLS)
        _check_size("validation_size", self.validation_size, _VALIDATION_CELLS)

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Make the splits, each the same whatever the size of the other; nothing is read."""
        from datasets import Dataset

        return {split: Dataset.from_list(self._rows(split)) for split in splits}

    def _rows(self, split: str) -> list[dict[str, Any]]:
        if split == "train":
            return _draw(TRAINING, self.train_size, f"train {self.seed}", (True, False))
        rows = _draw(TESTING, self.validation_size, f"validation {self.seed}", (True,))
        counts = [
            count for count in NUM_ATTRACTORS if split in ("validation", f"validation_{count}")
        ]
        return [row for row in rows if row["attractors"] in counts]


def _check_size(name: str, size: int, cells: int) -> None:
    if not (0 < size <= _MAX_ROWS and size % cells == 0):
        raise ValueError(
            f"{name} must be a multiple of {cells} from {cells} to {_MAX_ROWS}, got {size}"
        )


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
            {"sentence": sentence, "attractors": attractors, "label": int(plural)}
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
