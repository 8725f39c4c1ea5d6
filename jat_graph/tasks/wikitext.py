"""WikiText-2: whole articles of Wikipedia."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from jat_graph.tasks.language import LanguageModelTask
from jat_graph.tasks.sources import find_file, load_from_hub, read_text

if TYPE_CHECKING:
    from datasets import Dataset

HUB_NAME, HUB_PART = "Salesforce/wikitext", "wikitext-2-raw-v1"

_STEMS = {"train": "train", "validation": "valid", "test": "test"}
_TITLE = re.compile(r"^ = (?!=).*(?<!=) = $", re.MULTILINE)
_TRAIN_SHARE = 0.8  # of the validation articles, where there is no file to train on

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WikiText2Task(LanguageModelTask):
    """Say what comes next in articles of Wikipedia; a row is an article, its title first.

    The splits are the published ones. Where a folder has no file to train on, as some copies have
    none, the first 80 % of the published validation articles are for training and the rest for
    validation, and a warning says so; the test is the published one always.

    Reference:
        Merity et al., *Pointer Sentinel Mixture Models*, ICLR 2017.
    """

    name: str = "wikitext2"
    splits: tuple[str, ...] = tuple(_STEMS)
    other_metrics: tuple[str, ...] = ("bits_per_character",)

    def load(
        self, data_dir: Path | None, splits: Sequence[str] | None = None
    ) -> dict[str, Dataset]:
        """Read the articles.

        Args:
            data_dir: The folder with ``wiki.train.tokens``, ``wiki.valid.tokens`` and
                ``wiki.test.tokens``, or ``train.txt``, ``valid.txt`` and ``test.txt``, plain or
                gzipped, or one that holds it; None asks the Hub for the raw texts.
            splits: The splits wanted. (default: None, all)

        Returns:
            The splits by name, with the column ``text``.

        Raises:
            ValueError: If a split is unknown, a file is damaged or does not begin with a title, or
                the Hub cannot be reached.
            OSError: If a file is missing or cannot be read.
        """
        from datasets import Dataset

        chosen = self.chosen_splits(splits)
        articles = (
            self._from_hub(chosen) if data_dir is None else self._from_files(data_dir, chosen)
        )
        return {split: Dataset.from_dict({"text": articles[split]}) for split in chosen}

    def _from_hub(self, splits: Sequence[str]) -> dict[str, list[str]]:
        loaded = load_from_hub(self.name, HUB_NAME, HUB_PART, splits=splits, columns=("text",))
        return {
            split: cut_articles("".join(lines["text"]), f"the Hub's {split} split")
            for split, lines in zip(splits, loaded, strict=True)
        }

    def _from_files(self, folder: Path, splits: Sequence[str]) -> dict[str, list[str]]:
        try:
            self._find(folder, "train")
        except FileNotFoundError:
            return self._without_train(folder, splits)
        return {split: _read_articles(self._find(folder, split)) for split in splits}

    def _without_train(self, folder: Path, splits: Sequence[str]) -> dict[str, list[str]]:
        """Read the test, and cut the validation articles in two."""
        articles = {}
        if "test" in splits:
            articles["test"] = _read_articles(self._find(folder, "test"))
        if "train" in splits or "validation" in splits:
            path = self._find(folder, "validation")
            both = _read_articles(path)
            middle = int(_TRAIN_SHARE * len(both))
            articles |= {"train": both[:middle], "validation": both[middle:]}
            message = "%s: no file to train on beside it; its first %d of %d articles serve as such"
            logger.warning(message, path, middle, len(both))
        return articles

    def _find(self, folder: Path, split: str) -> Path:
        stem = _STEMS[split]
        names = (f"wiki.{stem}.tokens", f"{stem}.txt", f"{stem}.txt.gz")
        return find_file(folder, self.name, ("wikitext-2", "lm/wikitext-2"), names)


def _read_articles(path: Path) -> list[str]:
    return cut_articles(read_text(path), str(path))


def cut_articles(text: str, place: str) -> list[str]:
    """Cut a text in front of each title."""
    starts = [found.start() for found in _TITLE.finditer(text)]
    if not starts or text[: starts[0]].strip():
        raise ValueError(f"{place} must begin with a title like ' = Title = '")
    borders = [*starts, len(text)]
    return [text[start:end].strip() for start, end in pairwise(borders)]
