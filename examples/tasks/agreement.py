"""Subject-verb agreement across attractors: text that is made here.

Choose the form of the verb that fits: "The keys next to the cabinet is/are wet". Between subject
and verb are one to three attractors, noun phrases. In the validation split all have the other
number than the subject; in half of the training split they do, and in half all have the subject's.
The label is the subject's number. Labels and attractors are balanced exactly; splits share only is,
was and has.

Reference:
    Linzen, Dupoux and Goldberg, *Assessing the Ability of LSTMs to Learn Syntax-Sensitive
    Dependencies*, TACL 2016.
"""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

from datasets import Dataset

from examples.tasks.base import Task, label_rows
from examples.tasks.metrics import score_sizes

NUM_ATTRACTORS = (1, 2, 3)
LABELS = ("singular", "plural")
# Words of each split. Nouns and verbs are pairs of a singular and a plural; of things and people
# there is what they can be, and what they can have done or had done to them.
LEXICONS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
HAVE = ["has", "have"]
# Whether attractors may have the other number than the subject, and whether the same.
CONFLICTS = {"train": (True, False), "validation": (True,)}
_MAX_ROWS = 36_000  # far below what the words can say, so that every draw soon is a new one


def agreement_task(*, train: int = 720, validation: int = 600, seed: int = 0) -> Task:
    """The task with so many sentences, multiples of 12 and of 6; the seed decides what is drawn."""
    sizes = {"train": train, "validation": validation}
    for name, size in sizes.items():
        cells = len(NUM_ATTRACTORS) * len(LABELS) * len(CONFLICTS[name])
        if not (0 < size <= _MAX_ROWS and size % cells == 0):
            raise ValueError(f"{name} must be a multiple of {cells} up to {_MAX_ROWS}, got {size}")

    def read(_: Path | None, split: str) -> Dataset:
        return label_rows(_draw(split, sizes[split], seed), LABELS)

    return Task("agreement", "classification", read, score_sizes, ("accuracy",), by="attractors")


def _draw(split: str, size: int, seed: int) -> list[dict[str, Any]]:
    """Draw different sentences, equally many for each combination of properties."""
    source = random.Random(f"{split} {seed}")  # a text as seed is hashed the same way everywhere
    cells = list(product(NUM_ATTRACTORS, (False, True), CONFLICTS[split]))
    rows: list[dict[str, Any]] = []
    for attractors, plural, conflict in cells:
        sentences: dict[str, None] = {}
        while len(sentences) < size // len(cells):
            sentences[_sentence(source, LEXICONS[split], attractors, plural, conflict)] = None
        properties = {"attractors": attractors, "label": int(plural)}
        rows.extend({"text": sentence, **properties} for sentence in sentences)
    source.shuffle(rows)
    return rows


def _sentence(
    source: random.Random, lexicon: Any, attractors: int, plural: bool, conflict: bool
) -> str:
    """Draw a sentence with both forms of its verb."""
    kinds = lexicon["things"], lexicon["people"]
    kind = source.choice(kinds)
    subject = source.choice(kind["nouns"])
    others = [noun for own in kinds for noun in own["nouns"] if noun != subject]
    others = source.sample(others, attractors)
    prepositions = source.sample(lexicon["prepositions"], attractors)
    words = [f"The {subject[plural]}"]
    for preposition, noun in zip(prepositions, others, strict=True):
        words.append(f"{preposition} the {noun[plural != conflict]}")
    verb = source.choice([*lexicon["verbs"], HAVE])
    said = source.choice(kind["participles" if verb == HAVE else "adjectives"])
    return " ".join([*words, "/".join(verb), f"{said}."])
