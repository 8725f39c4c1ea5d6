"""A task's splits as token ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.tasks import Task

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

TRAIN = "train"

# Seed of the draw that max_train_samples and max_eval_samples ask for: one subset for all seeds.
_SUBSET_SEED = 0


def dev_splits(task: Task) -> tuple[str, ...]:
    """Return the splits a task is evaluated on; the first decides which weights are best.

    Args:
        task: The task.

    Returns:
        Their names: MNLI has two.
    """
    return tuple(split for split in task.splits if split != TRAIN)


def draw(dataset: Dataset, limit: int | None) -> Dataset:
    """Return a random subset, the same in every run.

    Args:
        dataset: Any split.
        limit: Rows wanted; None keeps all.

    Returns:
        The split itself, or ``limit`` of its rows.
    """
    if limit is None or limit >= len(dataset):
        return dataset
    return dataset.shuffle(seed=_SUBSET_SEED).select(range(limit))


def encode(
    dataset: Dataset, task: Task, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> Dataset:
    """Turn texts into token ids once; batches are padded later, to their own longest row.

    Args:
        dataset: Rows with the task's text columns and ``label``.
        task: The task.
        tokenizer: The model's tokenizer.
        max_length: Tokens kept; of a pair the longer text is cut first.

    Returns:
        A dataset with the tokenizer's columns and ``labels``.
    """
    from datasets import Dataset

    texts = [list(dataset[column]) for column in task.text_columns]
    columns = tokenizer(*texts, truncation=True, max_length=max_length)
    return Dataset.from_dict({**columns, "labels": list(dataset["label"])})


def load_splits(
    task: Task,
    names: tuple[str, ...],
    tokenizer: PreTrainedTokenizerBase,
    *,
    data_dir: str | None,
    max_length: int,
    max_train_samples: int | None = None,
    max_eval_samples: int | None = None,
) -> dict[str, Dataset]:
    """Load and encode a task's splits.

    Args:
        task: The task.
        names: The splits wanted.
        tokenizer: The model's tokenizer.
        data_dir: Folder with the original files; None loads the task by its name.
        max_length: Tokens kept of each row.
        max_train_samples: Rows of the training split; None keeps all. (default: None)
        max_eval_samples: Rows of each dev set; None keeps all. (default: None)

    Returns:
        The encoded splits by name.

    Raises:
        OSError: If a file is missing or cannot be read.
        ValueError: If a row is malformed.
    """
    splits = task.load(None if data_dir is None else Path(data_dir), names)
    limits = {name: max_train_samples if name == TRAIN else max_eval_samples for name in names}
    return {
        name: encode(draw(splits[name], limits[name]), task, tokenizer, max_length)
        for name in names
    }
