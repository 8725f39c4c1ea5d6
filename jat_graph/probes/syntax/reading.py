"""What the probes of syntax read off a model, and which sentences they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from jat_graph.hf.modules import attention_modules
from jat_graph.probes.treebank import ROOT, Sentence
from jat_graph.probes.words import ATTENTION, GRAPH, WordReader, WordReading

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]


def check_sentences(name: str, sentences: Sequence[Sentence]) -> None:
    """Refuse what is no sequence of sentences with trees."""
    if not isinstance(sentences, Sequence) or not sentences:
        raise ValueError(f"{name} must be one or more sentences, got {sentences!r}")
    wrong = next((entry for entry in sentences if not isinstance(entry, Sentence)), None)
    if wrong is not None:
        raise ValueError(f"{name} must hold sentences of a treebank, got {wrong!r}")


def words_of(sentences: Sequence[Sentence]) -> list[list[str]]:
    """The words of sentences, as a reader takes them."""
    return [list(sentence.words) for sentence in sentences]


def frequent_relations(sentences: Sequence[Sentence]) -> list[tuple[str, int]]:
    """Relations of words to heads and how often there are, the most frequent first."""
    counts = Counter(
        relation
        for sentence in sentences
        for relation, head in zip(sentence.relations, sentence.heads, strict=True)
        if head != ROOT
    )
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


def hides_later(reader: WordReader) -> bool:
    """Tell whether scores must be hidden from earlier words; probabilities and graphs are 0."""
    if reader.maps in (ATTENTION, GRAPH):
        return False
    return any(entry.is_causal for entry in attention_modules(reader.model))


def seen_maps(reading: WordReading, later_hidden: bool, hidden: float) -> Floats:  # [C, W, W]
    """The maps of a sentence, with a number in the place of what a model never looks at."""
    assert reading.maps is not None
    maps: Floats = reading.maps.numpy()
    if not later_hidden:
        return maps
    earlier = np.tri(maps.shape[-1], dtype=bool)
    return np.where(earlier, maps, np.float32(hidden))


def describe(model: PreTrainedModel, maps: str) -> dict[str, Any]:
    """What of a model is read, for the settings of findings."""
    return {"model": type(model).__name__, "maps": maps}
