"""Stepping stones: which of two things costs more, when other things lie between them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jat_graph.tasks.base import ClassificationTask

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray

ADJECTIVES = ("red", "blue", "green", "black", "white", "brown", "old", "new", "big", "small")
NOUNS = ("lamp", "chair", "table", "clock", "book", "bag", "hat", "cup", "ring", "coat")

# Every fifth diagonal of the table of adjectives and nouns is a split's own, so that each split
# knows all words, and no name of another one.
_DIAGONALS = {"train": (2, 3, 4), "validation": (1,), "test": (0,)}
_ENDS = 2  # things of a chain that are never asked about: what costs the most and the least


@dataclass(frozen=True, kw_only=True)
class SteppingStonesTask(ClassificationTask):
    """Tell whether one thing costs more than another, from sentences that compare neighbours.

    There are two chains of things, each of which costs more than the next. All sentences "A costs
    more than B." of both chains stand in random order. The question is about two things that are so
    many steps apart: in one chain, where the answer is yes or no, or as far apart, but one in
    each chain, where it is unknown; each chain is the other's distractor. Nobody is asked about
    the ends of a chain, so that each thing asked about once costs more and once costs less than
    another: nothing is learnt from looking at it alone, and what a text looks like says nothing
    about the number of steps. Answers and steps are balanced exactly, in every combination.

    A thing has an adjective and a noun. All splits share these words, but a name of one split is
    in no other: "red lamp" has to be understood as a red lamp.

    Args:
        steps: The numbers of steps that there are. (default: 1 to 4)
        things: Things of a chain. (default: 7, the least for 4 steps)
        train_size: Texts to train on, a multiple of 3 times the number of ``steps``. (default:
            12000)
        validation_size: Texts to validate on, likewise. (default: 600)
        test_size: Texts to test on, likewise. (default: 1200)
        seed: Decides what is drawn. (default: 0)

    Reference:
        Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*,
        NeurIPS 2022, whose figure 2 has one step between "book cost more than pencil" and "book
        cost less than computer".
    """

    name: str = "steppingstones"
    text_columns: tuple[str, ...] = ("question", "facts")
    labels: tuple[str, ...] | None = ("yes", "no", "unknown")
    splits: tuple[str, ...] = ("train", "validation", "test")
    primary_metric: str = "accuracy"
    steps: tuple[int, ...] = (1, 2, 3, 4)
    things: int = 7
    train_size: int = 12_000
    validation_size: int = 600
    test_size: int = 1200
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.steps or min(self.steps) < 1 or len(set(self.steps)) != len(self.steps):
            raise ValueError(f"steps must be different numbers from 1, got {self.steps}")
        least, most = max(self.steps) + 1 + _ENDS, len(_names("test")) // 2
        if not least <= self.things <= most:
            raise ValueError(
                f"things must be from {least} to {most} for {max(self.steps)} steps, "
                f"got {self.things}"
            )
        cells = 3 * len(self.steps)
        for name in ("train_size", "validation_size", "test_size"):
            size = getattr(self, name)
            if size < 1 or size % cells:
                raise ValueError(f"{name} must be a multiple of {cells} above 0, got {size}")

    def load(
        self, data_dir: Path | None, splits: Sequence[str] | None = None
    ) -> dict[str, Dataset]:
        """Make the splits: the same in every run, and each whatever the size of the others.

        Args:
            data_dir: Not used; nothing is read.
            splits: The splits wanted. (default: None, all)

        Returns:
            The splits by name, with the columns ``question``, ``facts``, ``steps`` and ``label``.

        Raises:
            ValueError: If a split is unknown.
        """
        from datasets import Dataset

        chosen = self.chosen_splits(splits)
        return {split: Dataset.from_list(self._rows(split)) for split in chosen}

    def compute_metrics(
        self, predictions: NDArray[np.floating[Any]], labels: NDArray[Any]
    ) -> dict[str, float]:
        """Compare predictions with labels, whatever the number of steps.

        Args:
            predictions: Logits.
            labels: The labels.

        Shapes:
            predictions: ``[N, 3]``.
            labels: ``[N]``.

        Returns:
            The accuracy, by its name.

        Raises:
            ValueError: If shapes do not fit, a prediction is not finite, or a label is unknown.
        """
        said = self.decide(predictions, labels)
        return {"accuracy": float((said == labels).mean())}

    def gather(self, said: Sequence[Any], rows: Dataset) -> tuple[list[Any], list[Any]]:
        """Put what a model said beside what is right, and the number of steps.

        Args:
            said: Class numbers, one entry a row.
            rows: The rows.

        Returns:
            What was said of each row, and pairs of its label and its number of steps.
        """
        return list(said), [list(pair) for pair in zip(rows["label"], rows["steps"], strict=True)]

    def measure(self, said: Sequence[Any], right: Sequence[Any]) -> dict[str, float]:
        """Compare what :meth:`gather` put side by side; any selection of examples will do.

        Args:
            said: The class number that a model said of each example.
            right: Its label and its number of steps.

        Returns:
            ``accuracy``, and ``accuracy_1`` and so on for each number of steps; NaN for one that no
            example has.
        """
        labels, steps = np.asarray(right).reshape(-1, 2).T
        hits = np.asarray(said) == labels
        scores = {"accuracy": _mean(hits)}
        return scores | {f"accuracy_{step}": _mean(hits[steps == step]) for step in self.steps}

    def _rows(self, split: str) -> list[dict[str, Any]]:
        source = random.Random(f"{split} {self.seed}")  # a text is hashed the same way everywhere
        names, cells = _names(split), list(product(self.steps, range(3)))
        rows = [
            self._row(source, names, steps, label, swapped=number % 2 == 1)
            for steps, label in cells
            for number in range(getattr(self, f"{split}_size") // len(cells))
        ]
        source.shuffle(rows)
        return rows

    def _row(
        self, source: random.Random, names: list[str], steps: int, label: int, swapped: bool
    ) -> dict[str, Any]:
        """Draw a text; of unknown things the first is the lower one where ``swapped`` says so."""
        drawn = source.sample(names, 2 * self.things)
        chains = drawn[: self.things], drawn[self.things :]
        facts = [f"{more} costs more than {less}." for more, less in _links(chains)]
        source.shuffle(facts)
        upper = source.randint(1, self.things - 2 - steps)
        pair = chains[0][upper], chains[label == 2][upper + steps]
        one, other = reversed(pair) if label == 1 or (label == 2 and swapped) else pair
        return {
            "question": f"does {one} cost more than {other}?",
            "facts": " ".join(facts),
            "steps": steps,
            "label": label,
        }


def _names(split: str) -> list[str]:
    return [
        f"{adjective} {noun}"
        for row, adjective in enumerate(ADJECTIVES)
        for column, noun in enumerate(NOUNS)
        if (row + column) % 5 in _DIAGONALS[split]
    ]


def _links(chains: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    for chain in chains:
        yield from pairwise(chain)


def _mean(hits: NDArray[Any]) -> float:
    return float(hits.mean()) if len(hits) else float("nan")
