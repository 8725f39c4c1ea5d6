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

from collections.abc import Sequence
from itertools import product
from pathlib import Path

from examples.tasks.base import Splits, Task, label_rows, tag_rows
from examples.tasks.comparisons import Comparison, check_chains, draw_comparisons
from examples.tasks.metrics import OUTSIDE, score_sizes, score_spans, write_tags
from examples.tasks.tagging import bio_tags

LABELS = ("yes", "no", "unknown")


def comparisons_task(
    name: str = "steppingstones",
    *,
    steps: tuple[int, ...] = (1, 2, 3, 4),
    things: int = 7,
    train: int = 24_000,
    validation: int = 600,
    test: int = 1200,
    seed: int = 0,
    lesson: str | None = None,
) -> Task:
    """Tell whether one thing costs more than another.

    A lesson before that asks of the same texts where the neighbours of the things asked about are.
    In each sentence in which a thing asked about stands, it is tagged as such, ``is-first``, and
    the other thing as ``below-first`` or ``above-first``; in a lesson of both, the second thing
    asked about counts as well, as in ``below-first+is-second``, which answers a question of one
    step. A small encoder learns to compare names much sooner when it is told something of each word
    than when it is told yes, no or unknown.

    Args:
        name: What the task is called.
        steps: The numbers of steps that there are.
        things: Things of a chain; 7 are the least for 4 steps.
        train: Texts to train on, a multiple of 3 times the number of ``steps``.
        validation: Texts to validate on, likewise.
        test: Texts to test on, likewise.
        seed: Decides what is drawn.
        lesson: ``"first"`` or ``"both"``. (default: None, the questions)
    """
    sizes = {"train": train, "validation": validation, "test": test}
    check_chains(steps, things, sizes)

    def read(data_dir: Path | None, names: Sequence[str]) -> Splits:
        drawn = {n: draw_comparisons(n, sizes[n], steps, things, seed) for n in names}
        if lesson is not None:
            tags, both = bio_tags(_types(lesson == "both")), lesson == "both"
            return {
                n: tag_rows([(one.text.split(), _tags(one, both)) for one in own], tags)
                for n, own in drawn.items()
            }
        return {
            n: label_rows(
                [{"text": o.text, "steps": o.steps, "label": o.label} for o in own], LABELS
            )
            for n, own in drawn.items()
        }

    if lesson is not None:
        return Task(name, "tagging", read, score_spans, ("f1", "precision", "recall"), (*sizes,))
    return Task(name, "classification", read, score_sizes, ("accuracy",), (*sizes,), by="steps")


def _types(both: bool) -> tuple[str, ...]:
    """Name what a thing can be to those asked about: at most one of them, or one beside itself."""
    first, second = (
        ("", *(f"{role}-{asked}" for role in ("is", "below", "above")))
        for asked in ("first", "second")
    )
    return tuple(
        "+".join(filter(None, pair))
        for pair in product(first, second if both else ("",))
        if any(pair) and (not all(pair) or sum(role.startswith("is-") for role in pair) == 1)
    )


def _tags(text: Comparison, both: bool) -> list[str]:
    """The tag of each word."""
    tags: list[str] = []
    asked = {"first": text.first} | ({"second": text.second} if both else {})
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
    return tags + [OUTSIDE] * len(text.question.split())
