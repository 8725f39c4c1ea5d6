"""Tags of words: spans of them, as in named-entity recognition, or each on its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from jat_graph.tasks.base import Task
from jat_graph.tasks.metrics import score_groups

if TYPE_CHECKING:
    from datasets import Dataset

OUTSIDE = "O"

_UNREAD = -1  # the number of no tag

# Type, first word, and the word after the last: a list, since JSON has no tuples.
Span: TypeAlias = list[Any]


@dataclass(frozen=True, kw_only=True)
class WordTask(Task):
    """Give each word of a sentence a tag; see :class:`TaggingTask` and :class:`WordTaggingTask`.

    The columns are ``tokens``, the words of a sentence, and ``tags``, one of each.
    """

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The tags in the order of their numbers."""

    @property
    @abstractmethod
    def unread(self) -> str:
        """What is said of a word that is cut off."""

    @abstractmethod
    def gather(
        self, said: Sequence[Sequence[str]], rows: Dataset
    ) -> tuple[list[list[Any]], list[list[Any]]]:
        """Put what a model said beside what is right, one entry a sentence.

        Args:
            said: Tags of each sentence.
            rows: Those of a split that were asked, with all of their columns.

        Returns:
            What was said and what is right of each sentence, in types of JSON.
        """

    @abstractmethod
    def measure(
        self, said: Sequence[Sequence[Any]], right: Sequence[Sequence[Any]]
    ) -> dict[str, float]:
        """Compare what :meth:`gather` put side by side; any selection of sentences will do.

        Args:
            said: What a model said of each sentence.
            right: What is right.

        Returns:
            The primary metric, then the others, by name; each from 0 to 1.
        """


@dataclass(frozen=True, kw_only=True)
class WordTaggingTask(WordTask):
    """Say of each word which tag it has, as its part of speech.

    The measure is the share of words whose tag is right, over all words of all sentences.

    Args:
        tags: Names of the tags, in the order of their numbers.
    """

    tags: tuple[str, ...]
    primary_metric: str = "accuracy"

    @property
    def labels(self) -> tuple[str, ...]:
        """The tags in the order of their numbers."""
        return self.tags

    @property
    def unread(self) -> str:
        """No tag: it is never right."""
        return ""

    def gather(
        self, said: Sequence[Sequence[str]], rows: Dataset
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Put the tags that a model gave beside the right ones, one entry a sentence.

        Args:
            said: Tags of each sentence; an empty one for a word that is cut off.
            rows: Those of a split that were asked, with all of their columns.

        Returns:
            What was said and what is right of each sentence: the number of each word's tag, -1
            where there is none.
        """
        number = {tag: place for place, tag in enumerate(self.tags)}
        told, right = (
            [[number.get(tag, _UNREAD) for tag in sentence] for sentence in sentences]
            for sentences in (said, rows["tags"])
        )
        return told, right

    def measure(
        self, said: Sequence[Sequence[int]], right: Sequence[Sequence[int]]
    ) -> dict[str, float]:
        """Compare tags with the right ones, one entry a sentence; any selection will do.

        Args:
            said: The numbers of the tags that a model gave to the words of each sentence.
            right: The right ones.

        Returns:
            The primary metric, then the others, by name; each from 0 to 1.

        Raises:
            ValueError: If there are no words, or not the same number of both.
        """
        return score_groups((self.primary_metric, *self.other_metrics), said, right)


@dataclass(frozen=True, kw_only=True)
class TaggingTask(WordTask):
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

    @property
    def unread(self) -> str:
        """O."""
        return OUTSIDE

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
