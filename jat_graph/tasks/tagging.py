"""Tags of words, as in named-entity recognition: spans of them, and a measure of spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from jat_graph.tasks.base import Task

if TYPE_CHECKING:
    from datasets import Dataset

OUTSIDE = "O"

# Type, first word, and the word after the last: a list, since JSON has no tuples.
Span: TypeAlias = list[Any]


@dataclass(frozen=True, kw_only=True)
class TaggingTask(Task):
    """Find the named things in sentences that are cut into words, and say of which type each is.

    The columns are ``tokens``, the words of a sentence, and ``tags``, one of each: ``O`` outside,
    ``B-TYPE`` where a thing begins, ``I-TYPE`` where it goes on.

    Args:
        types: Names of the types.
    """

    types: tuple[str, ...]
    primary_metric: str = "f1"
    other_metrics: tuple[str, ...] = ("precision", "recall")

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags in the order of their numbers: O, then B and I of each type."""
        return (OUTSIDE, *(f"{part}-{name}" for name in self.types for part in "BI"))

    def gather(
        self, said: Sequence[Sequence[str]], rows: Dataset
    ) -> tuple[list[list[Span]], list[list[Span]]]:
        """Put the spans that a model found beside the right ones, one entry a sentence.

        Args:
            said: Tags of each sentence.
            rows: Those of a split that were asked, with all of their columns.

        Returns:
            What was said and what is right of each sentence: type, first word and the word after
            the last of each span.
        """
        return [find_spans(tags) for tags in said], [find_spans(tags) for tags in rows["tags"]]

    def measure(
        self, said: Sequence[Sequence[Span]], right: Sequence[Sequence[Span]]
    ) -> dict[str, float]:
        """Compare spans with the right ones, one entry a sentence; any selection will do.

        Args:
            said: The spans that a model found in each sentence.
            right: The right ones.

        Returns:
            The primary metric, then the others, by name; each from 0 to 1.
        """
        scores = score_spans(said, right)
        return {name: scores[name] for name in (self.primary_metric, *self.other_metrics)}


def find_spans(tags: Sequence[str]) -> list[Span]:
    """Read tags as conlleval does, so that IOB1 and BIO, well formed or not, mean something.

    A span begins at each ``B-``, and at an ``I-`` that does not follow a word of its type.

    Reference:
        Tjong Kim Sang and De Meulder, *Introduction to the CoNLL-2003 Shared Task*, CoNLL 2003.
    """
    spans: list[Span] = []
    previous = OUTSIDE
    for place, tag in enumerate(tags):
        if tag.startswith("I-") and previous[2:] == tag[2:]:
            spans[-1][2] = place + 1
        elif tag != OUTSIDE:
            spans.append([tag[2:], place, place + 1])
        previous = tag
    return spans


def write_tags(spans: Sequence[Span], length: int) -> list[str]:
    """Write spans as BIO; the way back from :func:`find_spans`."""
    tags = [OUTSIDE] * length
    for name, start, stop in spans:
        tags[start:stop] = [f"B-{name}", *[f"I-{name}"] * (stop - start - 1)]
    return tags


def score_spans(
    said: Sequence[Sequence[Span]], right: Sequence[Sequence[Span]]
) -> dict[str, float]:
    """Count a span as right if its type and both of its ends are.

    Reference:
        scikit-learn's ``precision_recall_fscore_support``.
    """
    from sklearn.metrics import precision_recall_fscore_support

    found, wanted = _numbered(said), _numbered(right)
    spans = found | wanted
    if not spans:  # which scikit-learn has no word for
        return dict.fromkeys(("precision", "recall", "f1"), 0.0)
    precision, recall, f1, _ = precision_recall_fscore_support(
        [span in wanted for span in spans],
        [span in found for span in spans],
        average="binary",
        zero_division=0.0,
    )
    return {"precision": float(precision), "recall": float(recall), "f1": float(f1)}


def _numbered(sentences: Sequence[Sequence[Span]]) -> set[tuple[Any, ...]]:
    """The spans of all sentences, each with the number of its own."""
    return {(number, *span) for number, spans in enumerate(sentences) for span in spans}
