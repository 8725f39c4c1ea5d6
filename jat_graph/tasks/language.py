"""Tasks of saying what comes next, in a text or in a sequence of tokens; two bodies of text."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jat_graph.tasks.base import Task
from jat_graph.tasks.metrics import score_losses
from jat_graph.tasks.sources import find_file, load_from_hub, plain_or_gzipped, read_text

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from numpy.typing import NDArray

HUB_NAME, HUB_PART = "Salesforce/wikitext", "wikitext-2-raw-v1"

_STEMS = {"train": "train", "validation": "valid", "test": "test"}
_TITLE = re.compile(r"^ = (?!=).*(?<!=) = $", re.MULTILINE)
_TRAIN_SHARE = 0.8  # of WikiText's validation articles, where there is no file to train on
_SHAKESPEARES_SHARE = 0.9

logger = logging.getLogger(__name__)


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

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read the articles, of the Hub's raw texts where there is no folder."""
        from datasets import Dataset

        read = self._from_hub(splits) if data_dir is None else self._from_files(data_dir, splits)
        return {split: Dataset.from_dict({"text": articles}) for split, articles in read.items()}

    def _from_hub(self, splits: Sequence[str]) -> dict[str, list[str]]:
        loaded = load_from_hub(self.name, HUB_NAME, HUB_PART, splits=splits, columns=("text",))
        return {
            split: cut_articles("".join(lines["text"]), f"the Hub's {split} split")
            for split, lines in loaded.items()
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

    def _load(self, data_dir: Path | None, splits: tuple[str, ...]) -> dict[str, Dataset]:
        """Read the text and cut it in two."""
        from datasets import Dataset

        homes = ("tinyshakespeare", "lm/tinyshakespeare")
        text = read_text(find_file(data_dir, self.name, homes, plain_or_gzipped("input.txt")))
        middle = int(_SHAKESPEARES_SHARE * len(text))
        parts = {"train": text[:middle], "validation": text[middle:]}
        return {split: Dataset.from_dict({"text": [parts[split]]}) for split in splits}


def _read_articles(path: Path) -> list[str]:
    return cut_articles(read_text(path), str(path))


def cut_articles(text: str, place: str) -> list[str]:
    """Cut a text in front of each title."""
    starts = [found.start() for found in _TITLE.finditer(text)]
    if not starts or text[: starts[0]].strip():
        raise ValueError(f"{place} must begin with a title like ' = Title = '")
    borders = [*starts, len(text)]
    return [text[start:end].strip() for start, end in pairwise(borders)]
