"""What a task is: splits and a measure; some of its kinds: classes, choices, answers in a text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.answers import score_answers
from jat_graph.tasks.metrics import decide, put_together, score, score_groups

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Something to train for and be measured at; see its kinds.

    Args:
        name: The name users type.
        splits: Names of the splits, ``"train"`` first; the next one decides what is best.
        primary_metric: The measure that papers report.
        other_metrics: Further measures. (default: none)
        source: Column with the text that several rows are about, as the paragraph of a question;
            rows that are held out of the training data share none with it. (default: None)
    """

    name: str
    splits: tuple[str, ...]
    primary_metric: str
    other_metrics: tuple[str, ...] = ()
    source: str | None = None

    @property
    def greater_is_better(self) -> bool:
        """Whether a greater value of the primary metric is the better one."""
        return True

    def load(
        self, data_dir: Path | None, splits: Sequence[str] | None = None
    ) -> dict[str, Dataset]:
        """Read splits from the original files or from the Hub, or make them.

        Args:
            data_dir: Folder with the task's files, plain or gzipped, or one that holds it; None
                asks the Hub. A task that makes its texts reads nothing.
            splits: The splits wanted; files of others may be missing. (default: None, all)

        Returns:
            The splits by name, with the columns of the task's kind.

        Raises:
            ValueError: If a split is unknown, a file is damaged or its content malformed (named
                with its place), the Hub cannot be reached, or has no such task.
            OSError: If a file is missing or cannot be read.
        """
        chosen = self.chosen_splits(splits)
        loaded = self._load(data_dir, chosen)
        return {split: loaded[split] for split in chosen}

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """These splits, and perhaps others."""
        raise NotImplementedError

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
class LabelledTask(Task):
    """A task with one label a row; see :class:`ClassificationTask` and :class:`ChoiceTask`.

    Args:
        group: Column whose value the rows of one example share, as the answers to one question of
            MultiRC do; they are drawn and counted together. (default: None, a row is an example)
    """

    group: str | None = None

    @property
    @abstractmethod
    def num_classes(self) -> int | None:
        """Number of classes that a label is one of; None for a regression."""

    def compute_metrics(
        self, predictions: NDArray[np.floating[Any]], labels: NDArray[Any]
    ) -> dict[str, float]:
        """Compare predictions with labels.

        Args:
            predictions: Logits; of a regression its output.
            labels: What is right, as the column ``label`` has it.

        Shapes:
            predictions: ``[N, C]`` for C classes; ``[N]`` or ``[N, 1]`` for a regression.
            labels: ``[N]``.

        Returns:
            The primary metric, then the others, by name.

        Raises:
            ValueError: If shapes do not fit, a prediction is not finite, a label is unknown, or the
                task has groups: then :meth:`gather` and :meth:`measure` are needed.
        """
        if self.group is not None:
            raise ValueError(
                f"task {self.name} is scored by {self.group}: use decide, gather and measure"
            )
        return self.measure(self.decide(predictions, labels).tolist(), labels.tolist())

    def decide(self, predictions: NDArray[np.floating[Any]], labels: NDArray[Any]) -> NDArray[Any]:
        """Say what a model's outputs mean.

        Args:
            predictions: Logits; of a regression its output.
            labels: What is right, as the column ``label`` has it.

        Shapes:
            predictions: ``[N, C]`` for C classes; ``[N]`` or ``[N, 1]`` for a regression.
            labels: ``[N]``.

        Returns:
            Class numbers; of a regression the outputs in float64. ``[N]``.

        Raises:
            ValueError: If shapes do not fit, a prediction is not finite, or a label is unknown.
        """
        return decide(predictions, labels, self.num_classes)

    def gather(self, said: Sequence[Any], rows: Dataset) -> tuple[list[Any], list[Any]]:
        """Put what a model said beside what is right, one entry an example.

        Args:
            said: What :meth:`decide` returned, one entry a row.
            rows: Those of a split that were asked, with all of their columns.

        Returns:
            What was said and what is right of each example, in types of JSON; of a task with groups
            the lists of an example's rows, in the order in which the groups appear.
        """
        right = list(rows["label"])
        if self.group is None:
            return list(said), right
        both = put_together(rows[self.group], said, right)
        return both[0], both[1]

    def measure(self, said: Sequence[Any], right: Sequence[Any]) -> dict[str, float]:
        """Compare what :meth:`gather` put side by side; any selection of examples will do.

        Args:
            said: What a model said of each example.
            right: What is right.

        Returns:
            The primary metric, then the others, by name.

        Raises:
            ValueError: If there are no examples, or not the same number of both.
        """
        names = (self.primary_metric, *self.other_metrics)
        if self.group is not None:
            return score_groups(names, said, right)
        return score(names, said, right)


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(LabelledTask):
    """A classification or regression of texts or pairs of texts.

    The columns are those with the text, and ``label``.

    Args:
        text_columns: Columns with the text: one, or two for pairs.
        labels: Names of the classes in the order of their numbers; None for a regression.
    """

    text_columns: tuple[str, ...]
    labels: tuple[str, ...] | None

    @property
    def num_classes(self) -> int | None:
        """Number of labels; None for a regression."""
        return None if self.labels is None else len(self.labels)


@dataclass(frozen=True, kw_only=True)
class ChoiceTask(LabelledTask):
    """Choose the text that goes on best from another one.

    The columns are ``prompt``, ``choices`` with the texts to choose from, and ``label``, the number
    of the right one.

    Args:
        num_choices: Number of texts to choose from.
    """

    num_choices: int

    @property
    def num_classes(self) -> int:
        """Number of texts to choose from."""
        return self.num_choices


@dataclass(frozen=True, kw_only=True)
class QuestionTask(Task):
    """Find the answer to a question as a piece of a text, as in SQuAD.

    The columns are ``id``, ``question``, ``context`` and ``answers``, which has the lists ``text``
    and ``answer_start``: the answers that count as right, and the character each begins at.

    Args:
        longest_answer: Tokens that an answer has at most. (default: 128)
    """

    primary_metric: str = "f1"
    other_metrics: tuple[str, ...] = ("exact_match",)
    source: str | None = "context"
    longest_answer: int = 128

    @property
    def may_be_unanswerable(self) -> bool:
        """Whether some questions have no answer."""
        return False

    def measure(self, said: Sequence[Any], right: Sequence[Sequence[str]]) -> dict[str, float]:
        """Compare answers with the right ones, by SQuAD's rules; any selection will do.

        Args:
            said: The model's answer to each question.
            right: The texts that count as right.

        Returns:
            The primary metric, then the others, by name; each from 0 to 1.

        Raises:
            ValueError: If there are no questions, or not the same number of both, or one lacks its
                right answers.
        """
        scores = score_answers(said, right)
        return {name: scores[name] for name in (self.primary_metric, *self.other_metrics)}
