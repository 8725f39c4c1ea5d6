"""Bodies of text to say the next token of: WikiText-2's articles and Tiny Shakespeare.

Reference:
    Merity et al., *Pointer Sentinel Mixture Models*, ICLR 2017; Karpathy, *The Unreasonable
    Effectiveness of Recurrent Neural Networks*, 2015, with nanoGPT's split.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from datasets import Dataset

from examples.tasks.base import Splits, Task, find_file, read_text

_STEMS = {"train": "train", "validation": "valid", "test": "test"}
_TITLE = re.compile(r"^ = (?!=).*(?<!=) = $", re.MULTILINE)

logger = logging.getLogger(__name__)


def read_wikitext(data_dir: Path | None, names: Sequence[str]) -> Splits:
    """Read articles, each a row, its title first.

    Where a folder has no file to train on, the first 80 % of the published validation articles are
    for training and the rest for validation, and a warning says so; the test is the published one.
    """

    def read(name: str) -> list[str]:
        files = (f"wiki.{_STEMS[name]}.tokens", f"{_STEMS[name]}.txt")
        return cut_articles(find_file(data_dir, "lm/wikitext-2", *files))

    try:
        found = {name: read(name) for name in dict.fromkeys(("train", *names))}
    except FileNotFoundError:
        every = read("validation")
        middle = int(0.8 * len(every))
        found = {"train": every[:middle], "validation": every[middle:]}
        found |= {"test": read("test")} if "test" in names else {}
        message = "%s has no WikiText-2 to train on; the first %d of %d validation articles serve"
        logger.warning(message, data_dir, middle, len(every))
    return {name: Dataset.from_dict({"text": found[name]}) for name in names}


def cut_articles(path: Path) -> list[str]:
    """Cut a text in front of each title, as `` = Title = ``."""
    text = read_text(path)
    starts = [found.start() for found in _TITLE.finditer(text)]
    if not starts or text[: starts[0]].strip():
        raise ValueError(f"{path} must begin with a title like ' = Title = '")
    return [text[start:end].strip() for start, end in pairwise([*starts, len(text)])]


def read_shakespeare(data_dir: Path | None, names: Sequence[str]) -> Splits:
    """Read the plays: the first nine tenths are for training; each split is a row."""
    text = read_text(find_file(data_dir, "lm/tinyshakespeare", "input.txt"))
    middle = int(0.9 * len(text))
    parts = {"train": text[:middle], "validation": text[middle:]}
    return {name: Dataset.from_dict({"text": [parts[name]]}) for name in names}


_BITS, _PERPLEXITY = "bits_per_character", "perplexity"
LANGUAGE = (
    Task(
        *("wikitext2", "language_modelling", read_wikitext, None, (_PERPLEXITY, _BITS)),
        splits=("train", "validation", "test"),
    ),
    Task(*("tinyshakespeare", "language_modelling", read_shakespeare, None, (_BITS, _PERPLEXITY))),
)
