"""Tiny Shakespeare: a million characters of plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.tasks.language import LanguageModelTask
from jat_graph.tasks.sources import find_file, needed_folder, read_text

if TYPE_CHECKING:
    from datasets import Dataset

_TRAIN_SHARE = 0.9


@dataclass(frozen=True, kw_only=True)
class TinyShakespeareTask(LanguageModelTask):
    """Say the next character of Shakespeare's plays.

    The file has no split. As nanoGPT has it, the first nine tenths of its characters are for
    training and the rest for validation: 1,003,854 and 111,540. Each split is one row.

    Reference:
        Karpathy, *The Unreasonable Effectiveness of Recurrent Neural Networks*, 2015; nanoGPT,
        ``data/shakespeare_char``.
    """

    name: str = "tinyshakespeare"
    splits: tuple[str, ...] = ("train", "validation")
    primary_metric: str = "bits_per_character"
    other_metrics: tuple[str, ...] = ("perplexity",)

    def load(
        self, data_dir: Path | None, splits: Sequence[str] | None = None
    ) -> dict[str, Dataset]:
        """Read the text and cut it in two.

        Args:
            data_dir: The folder with ``input.txt``, plain or gzipped, or one that holds it.
            splits: The splits wanted. (default: None, all)

        Returns:
            The splits by name, with the column ``text`` and one row.

        Raises:
            ValueError: If a split is unknown, there is no folder, or the file is damaged.
            OSError: If the file is missing or cannot be read.
        """
        from datasets import Dataset

        chosen = self.chosen_splits(splits)
        folder = needed_folder(self.name, data_dir)
        homes = ("tinyshakespeare", "lm/tinyshakespeare")
        text = read_text(find_file(folder, self.name, homes, ("input.txt", "input.txt.gz")))
        middle = int(_TRAIN_SHARE * len(text))
        parts = {"train": text[:middle], "validation": text[middle:]}
        return {split: Dataset.from_dict({"text": [parts[split]]}) for split in chosen}
