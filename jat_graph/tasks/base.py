"""What a task is: texts, labels, splits and a measure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.metrics import score

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Task(ABC):
    """A classification or regression task on sentences or pairs of sentences.

    Args:
        name: The name users type.
        text_columns: Columns with the text: one, or two for pairs.
        labels: Names of the classes in the order of their numbers; None for a regression.
        splits: Names of the splits, ``"train"`` first; the first dev set decides what is best.
        primary_metric: The measure that papers report.
        other_metrics: Further measures. (default: none)
    """

    name: str
    text_columns: tuple[str, ...]
    labels: tuple[str, ...] | None
    splits: tuple[str, ...]
    primary_metric: str
    other_metrics: tuple[str, ...] = ()

    @abstractmethod
    def load(
        self, data_dir: Path | None, splits: Sequence[str] | None = None
    ) -> dict[str, Dataset]:
        """Read splits.

        Args:
            data_dir: Folder with the task's files; None gets them elsewhere.
            splits: The splits wanted; nothing else is read. (default: None, all)

        Returns:
            The splits by name, with the text columns and ``label``.

        Raises:
            ValueError: If a split is unknown or its content malformed.
            OSError: If a file is missing or cannot be read.
        """

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
