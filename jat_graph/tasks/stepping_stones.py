"""Stepping stones: which of two things costs more, when other things lie between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.base import ClassificationTask, Task
from jat_graph.tasks.comparisons import Comparison, check_chains, check_size, draw_comparisons
from jat_graph.tasks.tagging import OUTSIDE, TaggingTask, write_tags

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from numpy.typing import NDArray


SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class _Comparisons(Task):
    """Texts that compare things, drawn by their settings; a task says what of them is a row."""

    steps: tuple[int, ...] = (1, 2, 3, 4)
    things: int = 7
    train_size: int = 24_000
    validation_size: int = 600
    test_size: int = 1200
    seed: int = 0

    def __post_init__(self) -> None:
        check_chains(tuple(self.steps), self.things)
        for name in ("train_size", "validation_size", "test_size"):
            check_size(name, getattr(self, name), self.steps)

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Make the splits, each the same whatever the size of the others; nothing is read."""
        from datasets import Dataset

        return {
            split: Dataset.from_list([self.row(text) for text in self._draw(split)])
            for split in splits
        }

    def row(self, text: Comparison) -> dict[str, Any]:
        """What a text is to the task."""
        raise NotImplementedError

    def _draw(self, split: str) -> tuple[Comparison, ...]:
        size = getattr(self, f"{split}_size")
        return draw_comparisons(split, size, tuple(self.steps), self.things, self.seed)


@dataclass(frozen=True, kw_only=True)
class SteppingStonesTask(ClassificationTask, _Comparisons):
    """Tell whether one thing costs more than another, from sentences that compare neighbours.

    There are two chains of things, each of which costs more than the next. All sentences "A costs
    more than B." of both chains stand in random order. The question is about two things that are so
    many steps apart: in one chain, where the answer is yes or no, or as far apart, but one in
    each chain, where it is unknown; each chain is the other's distractor. Nobody is asked about
    the ends of a chain, so that each thing asked about once costs more and once costs less than
    another. Answers and steps are balanced exactly, in every combination. Guessing is right once
    in three times; whoever knows only which of the two stands higher in its chain is right twice,
    and the ends of a chain, which are named once, tell that of most questions of 3 and 4 steps.

    A thing has an adjective and a noun that nothing else in its text has. All splits share these
    words, but a name of one split is in no other.

    Args:
        steps: The numbers of steps that there are. (default: 1 to 4)
        things: Things of a chain. (default: 7, the least for 4 steps)
        train_size: Texts to train on, a multiple of 3 times the number of ``steps``. (default:
            24000)
        validation_size: Texts to validate on, likewise. (default: 600)
        test_size: Texts to test on, likewise. (default: 1200)
        seed: Decides what is drawn. (default: 0)

    Reference:
        Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*,
        NeurIPS 2022, whose figure 2 joins "book cost more than pencil" and "book cost less than
        computer".
    """

    name: str = "steppingstones"
    text_columns: tuple[str, ...] = ("text",)
    labels: tuple[str, ...] | None = ("yes", "no", "unknown")
    splits: tuple[str, ...] = SPLITS
    primary_metric: str = "accuracy"

    def row(self, text: Comparison) -> dict[str, Any]:
        """A text with its label and its number of steps."""
        return {"text": text.text, "steps": text.steps, "label": text.label}

    def compute_metrics(
        self, predictions: NDArray[np.floating[Any]], labels: NDArray[Any]
    ) -> dict[str, float]:
        """Compare predictions with labels, whatever the number of steps.

        Args:
            predictions: Logits.
            labels: What is right, as the column ``label`` has it.

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
            rows: Those of a split that were asked, with all of their columns.

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

        Raises:
            ValueError: If there are no examples, or not the same number of both.
        """
        if not said or len(said) != len(right):
            raise ValueError(
                f"there must be one answer for each example, got {len(said)} for {len(right)}"
            )
        hits = [(one == label, steps) for one, (label, steps) in zip(said, right, strict=True)]
        scores = {"accuracy": _mean([hit for hit, _ in hits])}
        return scores | {
            f"accuracy_{step}": _mean([hit for hit, steps in hits if steps == step])
            for step in self.steps
        }


@dataclass(frozen=True, kw_only=True)
class SteppingStonesLesson(TaggingTask, _Comparisons):
    """Find the neighbours of the things asked about: a lesson before :class:`SteppingStonesTask`.

    The texts are the same. In each sentence in which a thing asked about stands, it is tagged as
    such, ``is-first``, and the other thing as ``below-first`` or ``above-first``. With ``both``,
    the second thing asked about counts as well, as in ``below-first+is-second``, which answers a
    question of one step. A small encoder learns to compare names much sooner when it is told
    something of each word than when it is told yes, no or unknown.

    Args:
        both: Tag the neighbours of both things, not of the first alone. (default: False)
        steps: The numbers of steps that there are. (default: 1 to 4)
        things: Things of a chain. (default: 7)
        train_size: Texts to train on, a multiple of 3 times the number of ``steps``. (default:
            24000)
        validation_size: Texts to validate on, likewise. (default: 600)
        test_size: Texts to test on, likewise. (default: 1200)
        seed: Decides what is drawn. (default: 0)

    Reference:
        Bengio et al., *Curriculum Learning*, ICML 2009.
    """

    types: tuple[str, ...] = ()
    splits: tuple[str, ...] = SPLITS
    both: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "types", _types(self.both))

    def row(self, text: Comparison) -> dict[str, Any]:
        """The words of a text, and the tag of each."""
        return {"tokens": text.text.split(), "tags": _tags(text, self.both)}


def _types(both: bool) -> tuple[str, ...]:
    """Name what a thing can be to those asked about: at most one of them, or one beside itself."""
    pairs = product(_roles("first"), _roles("second") if both else ("",))
    return tuple(
        "+".join(filter(None, pair))
        for pair in pairs
        if any(pair) and (not all(pair) or sum(role.startswith("is-") for role in pair) == 1)
    )


def _roles(asked: str) -> tuple[str, ...]:
    return ("", f"is-{asked}", f"below-{asked}", f"above-{asked}")


def _tags(text: Comparison, both: bool) -> list[str]:
    """The tag of each word."""
    tags: list[str] = []
    asked = {"first": text.first} | ({"second": text.second} if both else {})
    for (more, less), sentence in zip(text.facts, text.sentences, strict=True):
        roles = [
            _name_roles(asked, *pair) for pair in ((more, less, "above"), (less, more, "below"))
        ]
        names = [(role, *place) for role, place in zip(roles, ((0, 2), (5, 7)), strict=True)]
        tags += write_tags([list(name) for name in names if name[0]], len(sentence.split()))
    return tags + [OUTSIDE] * len(text.question.split())


def _name_roles(asked: Mapping[str, str], name: str, other: str, side: str) -> str:
    """Say what a thing is to those asked about, in a sentence with another one."""
    roles = [
        f"is-{which}" if name == thing else f"{side}-{which}"
        for which, thing in asked.items()
        if thing in (name, other)
    ]
    return "+".join(roles)


def _mean(hits: Sequence[bool]) -> float:
    return sum(hits) / len(hits) if hits else math.nan
