"""What a task is: splits and a measure; its kinds: classes, the next token, answers in a text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.answers import score_answers
from jat_graph.tasks.metrics import score, score_losses

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Something to train for and be measured at; see its three kinds.

    Args:
        name: The name users type.
        splits: Names of the splits, ``"train"`` first; the next one decides what is best.
        primary_metric: The measure that papers report.
        other_metrics: Further measures. (default: none)
    """

    name: str
    splits: tuple[str, ...]
    primary_metric: str
    other_metrics: tuple[str, ...] = ()

    @property
    def greater_is_better(self) -> bool:
        """Whether a greater value of the primary metric is the better one."""
        return True

    @abstractmethod
    def load(
        self, data_dir: Path | None, splits: Sequence[str] | None = None
    ) -> dict[str, Dataset]:
        """Read splits.

        Args:
            data_dir: Folder with the task's files, or one that holds it; None gets them elsewhere.
            splits: The splits wanted; nothing else is read. (default: None, all)

        Returns:
            The splits by name, with the columns of the task's kind.

        Raises:
            ValueError: If a split is unknown or its content malformed.
            OSError: If a file is missing or cannot be read.
        """

    def chosen_splits(self, splits: Sequence[str] | None) -> tuple[str, ...]:
        """Check the names of splits.

        Args:
            splits: Names; None means all.

        Returns:
            The names.

        Raises:
            ValueError: If the task has no such split.
        """
        chosen = self.splits if splits is None else tuple(splits)
        for name in chosen:
            if name not in self.splits:
                raise ValueError(
                    f"split of task {self.name} must be one of {', '.join(self.splits)}, "
                    f"got {name!r}"
                )
        return chosen


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(Task):
    """A classification or regression of texts or pairs of texts.

    The columns are those with the text, and ``label``.

    Args:
        text_columns: Columns with the text: one, or two for pairs.
        labels: Names of the classes in the order of their numbers; None for a regression.
    """

    text_columns: tuple[str, ...]
    labels: tuple[str, ...] | None

    def compute_metrics(
        self, predictions: NDArray[np.floating[Any]], labels: NDArray[Any]
    ) -> dict[str, float]:
        """Compare predictions with labels.

        Args:
            predictions: Logits; of a regression its output.
            labels: The labels.

        Shapes:
            predictions: ``[N, C]`` for C classes; ``[N]`` or ``[N, 1]`` for a regression.
            labels: ``[N]``.

        Returns:
            The primary metric, then the others, by name.

        Raises:
            ValueError: If shapes do not fit, a prediction is not finite, or a label is unknown.
        """
        classes = None if self.labels is None else len(self.labels)
        return score((self.primary_metric, *self.other_metrics), predictions, labels, classes)


@dataclass(frozen=True, kw_only=True)
class LanguageModelTask(Task):
    """Say what comes next, in a text or in a sequence of tokens that need no tokenizer.

    The only column is ``text``, or ``tokens`` with numbers from 0 to ``vocabulary_size - 1``.

    Args:
        vocabulary_size: Number of different tokens; None for text, which the model's tokenizer
            cuts. (default: None)
    """

    primary_metric: str = "perplexity"
    vocabulary_size: int | None = None

    @property
    def greater_is_better(self) -> bool:
        """False: a model is the better, the less it is surprised."""
        return False

    @property
    def unit(self) -> str:
        """What bits are counted for: ``"character"`` of a text, else ``"token"``."""
        return "character" if self.vocabulary_size is None else "token"

    def compute_metrics(
        self, losses: NDArray[np.floating[Any]], units: int | None = None
    ) -> dict[str, float]:
        r"""Summarise how surprised a model was.

        Perplexity is :math:`\exp(\mathrm{mean}(-\ln p))` over the model's tokens, so that it
        depends on the tokenizer; bits for each character do not.

        Args:
            losses: :math:`-\ln p` of each token that was to be said.
            units: Characters that these tokens stand for. (default: None, one for each)

        Shapes:
            losses: ``[N]``.

        Returns:
            The primary metric, then the other: ``perplexity`` and ``bits_per_character`` or
            ``bits_per_token``.

        Raises:
            ValueError: If there is no loss, one is negative or NaN, or ``units`` is below 1.
        """
        scores = score_losses(losses, units, self.unit)
        return {name: scores[name] for name in (self.primary_metric, *self.other_metrics)}


@dataclass(frozen=True, kw_only=True)
class QuestionTask(Task):
    """Find the answer to a question as a piece of a text, as in SQuAD.

    The columns are ``id``, ``question``, ``context`` and ``answers``, which has the lists ``text``
    and ``answer_start``: the answers that count as right, and the character each begins at.
    """

    primary_metric: str = "f1"
    other_metrics: tuple[str, ...] = ("exact_match",)

    def compute_metrics(
        self, predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]]
    ) -> dict[str, float]:
        """Compare a model's answers with the right ones, by SQuAD's rules.

        Args:
            predictions: The model's answer to each question, by the question's id.
            answers: The texts that count as right, by the question's id.

        Returns:
            The primary metric, then the others, by name; each from 0 to 1.

        Raises:
            ValueError: If a question lacks one of the two.
        """
        scores = score_answers(predictions, answers)
        return {name: scores[name] for name in (self.primary_metric, *self.other_metrics)}
