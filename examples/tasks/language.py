"""Bodies to say the next token of: WikiText-2's articles, Tiny Shakespeare, and Bach's chorales.

Four voices of a chorale are one sequence of tokens.

Reference:
    Merity et al., *Pointer Sentinel Mixture Models*, ICLR 2017; Karpathy, *The Unreasonable
    Effectiveness of Recurrent Neural Networks*, 2015, with nanoGPT's split; Huang et al., *Music
    Transformer*, ICLR 2019, section 4.1, for the sequence of a chorale; Boulanger-Lewandowski et
    al., *Modeling Temporal Dependencies*, ICML 2012, for the chorales.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from datasets import Dataset

from examples.tasks.base import Task, find_file, reading
from examples.tasks.documents import read_brown, read_hyperpartisan
from jat_graph.core.files import parse_json, read_text

NUM_VOICES = 4
NUM_PITCHES = 128  # MIDI's; each is its own token
REST = NUM_PITCHES
START = NUM_PITCHES + 1
VOCABULARY_SIZE = NUM_PITCHES + 2
_STEMS = {"train": "train", "validation": "valid", "test": "test"}
_TITLE = re.compile(r"^ = (?!=).*(?<!=) = $", re.MULTILINE)


def read_wikitext(data_dir: Path | None, split: str) -> Dataset:
    """Read articles, a row each, which begin with a title, as `` = Title = ``."""
    stem = _STEMS[split]
    path = find_file(data_dir, "lm/wikitext-2", f"wiki.{stem}.tokens", f"{stem}.txt")
    text = read_text(path)
    starts = [title.start() for title in _TITLE.finditer(text)]
    if not starts or text[: starts[0]].strip():
        raise ValueError(f"{path} must begin with a title like ' = Title = '")
    articles = [text[start:end].strip() for start, end in pairwise([*starts, len(text)])]
    return Dataset.from_dict({"text": articles})


def read_prose(data_dir: Path | None, split: str) -> Dataset:
    """Read what there is of long texts, without those that others measure on.

    To train on: WikiText-2's test split, Brown and Hyperpartisan; else WikiText-2's validation.
    """
    if split != "train":
        return read_wikitext(data_dir, split)
    texts = [*read_wikitext(data_dir, "test")["text"]]
    for read in (read_brown, read_hyperpartisan):
        texts += [text for part in read(data_dir, split).values() for text in part["text"]]
    return Dataset.from_dict({"text": texts})


def read_shakespeare(data_dir: Path | None, split: str) -> Dataset:
    """Read the plays, a row: the first nine tenths are for training."""
    text = read_text(find_file(data_dir, "lm/tinyshakespeare", "input.txt"))
    middle = int(0.9 * len(text))
    return Dataset.from_dict({"text": [text[:middle] if split == "train" else text[middle:]]})


def chorale_to_tokens(steps: Iterable[Sequence[int]]) -> list[int]:
    """Write the voices of a chorale step by step after START, with REST for each missing one."""
    tokens = [START]
    for number, step in enumerate(steps):
        if len(step) > NUM_VOICES:
            raise ValueError(f"step {number} must have at most {NUM_VOICES} pitches, got {step}")
        for pitch in step:
            if not (0 <= pitch < NUM_PITCHES and pitch == int(pitch)):
                raise ValueError(f"step {number} must have pitches from 0 to 127, got {pitch}")
        tokens += [*(int(pitch) for pitch in step), *[REST] * (NUM_VOICES - len(step))]
    return tokens


def read_chorales(data_dir: Path | None, split: str, *, resolution: str) -> Dataset:
    """Read 229, 76 and 77 chorales, in steps of a sixteenth or a quarter."""
    path = find_file(data_dir, "jsb_chorales", f"jsb-chorales-{resolution}.json")
    content = parse_json(read_text(path), path)
    with reading(path, "chorales, lists of steps of pitches"):
        tokens = [*map(chorale_to_tokens, content[_STEMS[split]])]
    return Dataset.from_dict({"tokens": tokens})


def _task(name: str, read: Any, metrics: str, splits: str, vocabulary: int | None = None) -> Task:
    named = {"metrics": tuple(metrics.split()), "splits": tuple(splits.split())}
    return Task(name, "language_modelling", read, None, **named, vocabulary_size=vocabulary)


_ALL, _NOTES = "train validation test", "perplexity bits_per_token"
_FINE, _COARSE = (partial(read_chorales, resolution=step) for step in ("16th", "quarter"))
_PLAYS = "bits_per_character perplexity"
LANGUAGE = (
    _task("wikitext2", read_wikitext, "perplexity bits_per_character", _ALL),
    _task("prose", read_prose, "perplexity bits_per_character", "train validation"),
    _task("tinyshakespeare", read_shakespeare, _PLAYS, "train validation"),
    _task("chorales", _FINE, _NOTES, _ALL, VOCABULARY_SIZE),
    _task("choralesquarter", _COARSE, _NOTES, _ALL, VOCABULARY_SIZE),
)
