"""Stepping stones: which of two things costs more, when other things lie between them.

There are two chains of things, each of which costs more than the next. All sentences "A costs more
than B." of both chains stand in random order. The question is about two things that are so many
steps apart: in one chain, where the answer is yes or no, or as far apart, but one in each chain,
where it is unknown; each chain is the other's distractor. Nobody is asked about the ends of a
chain, so that each thing asked about once costs more and once costs less than another. Answers and
steps are balanced exactly, in every combination. Guessing is right once in three times; whoever
knows only which of the two stands higher in its chain is right twice, and the ends of a chain,
which are named once, tell that of most questions of 3 and 4 steps.

A thing has an adjective and a noun that nothing else in its text has. All splits share these words,
but a name of one split is in no other.

Reference:
    Zhou et al., *Jump Self-attention: Capturing High-order Statistics in Transformers*, NeurIPS
    2022, whose figure 2 joins "book cost more than pencil" and "book cost less than computer";
    Bengio et al., *Curriculum Learning*, ICML 2009, for lessons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path

from examples.tasks.base import Splits, Task, label_rows, tag_rows
from examples.tasks.comparisons import Comparison, check_chains, check_size, draw_comparisons
from examples.tasks.metrics import OUTSIDE, score_sizes, score_spans, write_tags
from examples.tasks.tagging import bio_tags

LABELS = ("yes", "no", "unknown")
SPLITS = ("train", "validation", "test")


def comparisons_task(
    name: str = "steppingstones",
    *,
    steps: tuple[int, ...] = (1, 2, 3, 4),
    things: int = 7,
    train: int = 24_000,
    validation: int = 600,
    test: int = 1200,
    seed: int = 0,
) -> Task:
    """Tell whether one thing costs more than another.

    Args:
        name: What the task is called.
        steps: The numbers of steps that there are.
        things: Things of a chain; 7 are the least for 4 steps.
        train: Texts to train on, a multiple of 3 times the number of ``steps``.
        validation: Texts to validate on, likewise.
        test: Texts to test on, likewise.
        seed: Decides what is drawn.
    """
    draw = _drawing(steps, things, train, validation, test, seed)

    def read(data_dir: Path | None, names: Sequence[str]) -> Splits:
        return {
            split: label_rows(
                [{"text": t.text, "steps": t.steps, "label": t.label} for t in draw(split)], LABELS
            )
            for split in names
        }

    return Task(name, "classification", read, score_sizes, ("accuracy",), SPLITS, by="steps")


def lesson_task(
    name: str = "steppingstonesfirst",
    *,
    both: bool = False,
    steps: tuple[int, ...] = (1, 2, 3, 4),
    things: int = 7,
    train: int = 24_000,
    validation: int = 600,
    test: int = 1200,
    seed: int = 0,
) -> Task:
    """Find the neighbours of the things asked about: a lesson before :func:`comparisons_task`.

    The texts are the same. In each sentence in which a thing asked about stands, it is tagged as
    such, ``is-first``, and the other thing as ``below-first`` or ``above-first``. With ``both``,
    the second thing asked about counts as well, as in ``below-first+is-second``, which answers a
    question of one step. A small encoder learns to compare names much sooner when it is told
    something of each word than when it is told yes, no or unknown.
    """
    draw = _drawing(steps, things, train, validation, test, seed)

    def read(data_dir: Path | None, names: Sequence[str]) -> Splits:
        return {
            split: tag_rows(
                [(text.text.split(), _tags(text, both)) for text in draw(split)],
                bio_tags(_types(both)),
            )
            for split in names
        }

    return Task(name, "tagging", read, score_spans, ("f1", "precision", "recall"), SPLITS)


def _drawing(
    steps: tuple[int, ...], things: int, train: int, validation: int, test: int, seed: int
) -> Callable[[str], tuple[Comparison, ...]]:
    check_chains(steps, things)
    sizes = {"train": train, "validation": validation, "test": test}
    for name, size in sizes.items():
        check_size(name, size, steps)

    def draw(split: str) -> tuple[Comparison, ...]:
        return draw_comparisons(split, sizes[split], steps, things, seed)

    return draw


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
        spans = [(role, *span) for role, span in zip(roles, ((0, 2), (5, 7)), strict=True) if role]
        tags += write_tags(spans, len(sentence.split()))
    return tags + [OUTSIDE] * len(text.question.split())


def _name_roles(asked: Mapping[str, str], name: str, other: str, side: str) -> str:
    """Say what a thing is to those asked about, in a sentence with another one."""
    roles = [
        f"is-{which}" if name == thing else f"{side}-{which}"
        for which, thing in asked.items()
        if thing in (name, other)
    ]
    return "+".join(roles)
