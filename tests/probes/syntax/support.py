"""Little trees, and models whose heads give what a test says."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel

from jat_graph.probes import Sentence
from jat_graph.probes.words import WordPlan, WordReader, WordReading
from tests.data.support import STEMS, tiny_tokenizer
from tests.hf.models import tiny_model

RELATIONS = ("nsubj", "obj", "det", "nmod:poss")
TAGS = ("NOUN", "VERB", "DET")

MapsOf = Callable[[int, Sequence[str]], Tensor]  # of a sentence: [C, W, W]


def random_sentence(length: int, draw: np.random.Generator) -> Sentence:
    """Each word in some order hangs on one that came before it."""
    order, heads = draw.permutation(length).tolist(), [-1] * length
    for place in range(1, length):
        heads[order[place]] = order[draw.integers(place)]
    return Sentence(
        tuple(draw.choice(STEMS, length).tolist()),
        tuple(draw.choice(TAGS, length).tolist()),
        tuple(heads),
        tuple("root" if head < 0 else str(draw.choice(RELATIONS)) for head in heads),
    )


def random_sentences(number: int, seed: int = 0, most: int = 12, least: int = 1) -> list[Sentence]:
    draw = np.random.default_rng(seed)
    return [random_sentence(int(draw.integers(least, most + 1)), draw) for _ in range(number)]


@st.composite
def sentences(draw: st.DrawFn, most: int = 4) -> list[Sentence]:
    """Draw a few sentences, one of them of two words at least."""
    others = draw(st.lists(st.integers(1, 8), max_size=most - 1))
    lengths = [*others, draw(st.integers(2, 8))]
    generator = np.random.default_rng(draw(st.integers(0, 2**20)))
    return [random_sentence(length, generator) for length in lengths]


def plant(monkeypatch: pytest.MonkeyPatch, heads: int, maps_of: MapsOf) -> list[int]:
    """Let every reader find these maps, and return the list of the sentences that it reads."""
    seen: list[int] = []

    def read(reader: WordReader, plan: WordPlan, first: int = 0) -> Iterator[list[WordReading]]:
        tokens = reader.tokenizer
        for rows in plan.batches[first:]:
            seen.extend(rows)
            readings = []
            for row in rows:
                ids = plan.encoded.inputs["input_ids"][row]
                words = [tokens.convert_ids_to_tokens(own) for own in ids[1:-1]]
                maps = maps_of(row, words).float()
                readings.append(WordReading(row, torch.zeros(1, len(words), 1), maps))
            yield readings

    monkeypatch.setattr(WordReader, "read", read)
    monkeypatch.setattr(WordReader, "heads", tuple((0, head) for head in range(heads)))
    return seen


def tiny() -> dict[str, Any]:
    """A model and its tokenizer, by name."""
    return {"model": tiny_model("bert"), "tokenizer": tiny_tokenizer()}


def decoder() -> tuple[PreTrainedModel, Any]:
    """A model that does not look ahead, and its tokenizer."""
    return tiny_model("gpt2"), tiny_tokenizer()
