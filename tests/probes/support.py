"""Random trees, and models whose heads and states are what a test says."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from jat_graph.probes import Sentence, WordReader
from tests.data.support import STEMS, tiny_tokenizer
from tests.hf.models import tiny_model

RELATIONS = ("nsubj", "obj", "det", "nmod:poss")
TAGS = ("NOUN", "VERB", "DET", "PUNCT")

MapsOf = Callable[[Sequence[str]], Tensor]  # of a sentence's words: [C, W, W]


def random_sentence(length: int, seed: int, tags: Sequence[str] = TAGS) -> Sentence:
    """Return words that the tiny tokenizer knows, each on one that came before it in some order."""
    draw = np.random.default_rng(seed)
    order, heads = draw.permutation(length).tolist(), [-1] * length
    for index in range(1, length):
        heads[order[index]] = order[draw.integers(index)]
    return Sentence(
        tuple(draw.choice(STEMS, length).tolist()),
        tuple(draw.choice(tags, length).tolist()),
        tuple(heads),
        tuple("root" if head < 0 else str(draw.choice(RELATIONS)) for head in heads),
    )


def random_sentences(number: int, seed: int = 0, most: int = 12, least: int = 1) -> list[Sentence]:
    draw = np.random.default_rng(seed)
    lengths = draw.integers(least, most + 1, number).tolist()
    return [random_sentence(length, 1000 * seed + row) for row, length in enumerate(lengths)]


def path_to_root(sentence: Sentence, word: int) -> list[int]:
    path = [word]
    while sentence.heads[path[-1]] != -1:
        path.append(sentence.heads[path[-1]])
    return path


def slow_distance(sentence: Sentence, i: int, k: int) -> int:
    """Climb from both words to the first that is above both."""
    up, other = path_to_root(sentence, i), path_to_root(sentence, k)
    return min(up.index(word) + other.index(word) for word in up if word in other)


def exact_embedding(sentence: Sentence, width: int) -> Tensor:
    """Return a unit step in a new direction for each edge of a tree.

    Coenen et al. 2019, theorem 1.1: squared distances are then the tree's.
    """
    points = torch.zeros(len(sentence), width, dtype=torch.float64)
    for word in range(len(sentence)):
        points[word, path_to_root(sentence, word)[:-1]] = 1.0
    return points


def tiny(folder: Path, model: PreTrainedModel | str = "bert") -> WordReader:
    own = tiny_model(model) if isinstance(model, str) else model
    return WordReader(own, tiny_tokenizer(), folder)


def planted(folder: Path, heads: int, maps_of: MapsOf, name: str = "bert") -> WordReader:
    """Return a reader of one layer that gives these maps, between two special tokens."""
    reader = tiny(folder, name)
    reader.model.config.update({"num_hidden_layers": 1, "num_attention_heads": heads})

    def give(_: Any, __: Any, inputs: Any, outputs: Any) -> Any:
        rows = inputs["input_ids"]
        maps = torch.zeros(len(rows), heads, *rows.shape[1:] * 2)
        for own, ids in zip(maps, rows, strict=True):
            own[:, 1:-1, 1:-1] = maps_of(reader.tokenizer.convert_ids_to_tokens(ids[1:-1]))
        outputs.attentions = (maps,)
        return outputs

    reader.model.register_forward_hook(give, with_kwargs=True)
    return reader


def plant_states(reader: WordReader, states_of: Callable[[Sequence[str]], Tensor]) -> WordReader:
    """Let a reader find these states of words, [W, D], after each layer."""

    def give(_: Any, __: Any, inputs: Any, outputs: Any) -> Any:
        rows = inputs["input_ids"]
        states = torch.zeros(*rows.shape, reader.model.config.hidden_size)
        for own, ids in zip(states, rows, strict=True):
            own[1:-1] = states_of(reader.tokenizer.convert_ids_to_tokens(ids[1:-1]))
        outputs.hidden_states = (states,) * len(outputs.hidden_states)
        return outputs

    reader.model.register_forward_hook(give, with_kwargs=True)
    return reader


def random_maps(heads: int, seed: int) -> MapsOf:
    draw = torch.Generator().manual_seed(seed)
    return lambda words: torch.rand(heads, len(words), len(words), generator=draw)


def minilm(folder: Path, path: str) -> WordReader:
    kinds = AutoModel, AutoTokenizer
    return WordReader(*(kind.from_pretrained(path) for kind in kinds), folder)
