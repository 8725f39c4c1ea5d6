"""What a model makes of the words of sentences: their states, and what its heads give to them.

A word's state is the mean over its tokens. What goes to a word is the sum over its tokens, what
comes from it the mean over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.compiling import setting
from jat_graph.core.files import replacing
from jat_graph.core.numbers import check_choice, check_indices, check_integer
from jat_graph.core.progress import track_progress
from jat_graph.hf import attach, attached_config
from jat_graph.hf.names import plain
from jat_graph.looking.data.reading import (
    ATTENTION,
    MAPS,
    EncodedTexts,
    Head,
    attention_heads,
    digest,
    encode_texts,
    is_jumping,
    jump_heads,
    model_digest,
    pool_words,
    read_texts,
)
from jat_graph.looking.probes import frames as pd
from jat_graph.looking.probes.findings import Floats
from jat_graph.looking.probes.treebank import Sentence

VERSION = 3  # of what is written, and how it is made


@dataclass(frozen=True)
class WordReader:
    """A model that probes ask, and where they keep what it makes of words.

    Args:
        model: A model of transformers, with jump heads or without; it reads in evaluation mode.
        tokenizer: Its tokenizer, a fast one.
        folder: Where states, what heads give, and trained probes are kept and found again. States
            take 1.5 KB for each word and layer at a width of 384; what heads give takes 8 bytes for
            each pair of words of a sentence and head.
        batch_size: Most sentences that the model reads at a time. (default: 32)

    Raises:
        ValueError: If ``batch_size`` is not in its range.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: str | Path
    batch_size: int = 32

    def __post_init__(self) -> None:
        check_integer("batch_size", self.batch_size, least=1)


def check_layers(reader: WordReader, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Return layers in rising order, 0 for the embeddings; None means all."""
    depth = reader.model.config.num_hidden_layers
    found = tuple(range(depth + 1)) if layers is None else check_indices("layers", layers)
    if found[-1] > depth:
        raise ValueError(f"layers must be at most {depth}, got {found[-1]}")
    return found


def check_maps(reader: WordReader, maps: str) -> tuple[Head, ...]:
    """Return layer and head of each map, or refuse maps that the model does not have."""
    check_choice("maps", maps, MAPS)
    return attention_heads(reader.model) if maps == ATTENTION else jump_heads(reader.model)


def readable(reader: WordReader, **parts: Any) -> list[list[Sentence]]:
    """Return the sentences of each part that the model can take whole; refuse what are none."""
    found = []
    for name, sentences in parts.items():
        if not isinstance(sentences, Sequence) or not sentences:
            raise ValueError(f"{name} must be one or more sentences, got {sentences!r}")
        wrong = next((entry for entry in sentences if not isinstance(entry, Sentence)), None)
        if wrong is not None:
            raise ValueError(f"{name} must hold sentences of a treebank, got {wrong!r}")
        _, words = _encode(reader, sentences)
        both = zip(sentences, words, strict=True)
        fits = [sentence for sentence, own in both if len(set(own) - {-1}) == len(sentence)]
        if not fits:
            raise ValueError("sentences must fit the model, got none that it can take whole")
        found.append(fits)
    return found


def _encode(
    reader: WordReader, sentences: Sequence[Sentence]
) -> tuple[EncodedTexts, list[list[int]]]:
    """Cut sentences into tokens, and say of which word each is, -1 for none."""
    texts = [sentence.words for sentence in sentences]
    encoded = encode_texts(texts, reader.model, reader.tokenizer, None, by_words=True)
    assert encoded.words is not None
    return encoded, encoded.words


def read_states(reader: WordReader, sentences: Sequence[Sentence]) -> Any:
    """Keep the states of all words after each layer, [layers + 1, N, D]."""
    shape = reader.model.config.num_hidden_layers + 1, reader.model.config.hidden_size
    counts = list(map(len, sentences))
    return _read_rows(reader, sentences, None, lambda _, states, __: states, counts, shape, None)


def read_pairs(
    reader: WordReader, sentences: Sequence[Sentence], pairs: pd.DataFrame, maps: str
) -> Any:
    """Keep what heads give from the earlier word of each pair to the later, and back: [2, N, C]."""
    counts = np.bincount(pairs["row"], minlength=len(sentences)).tolist()  # rows are in order
    words = np.split(pairs[["one", "other"]].to_numpy(), np.cumsum(counts)[:-1])

    def both_ways(row: int, _: Floats, own: Floats) -> Floats:
        one, other = words[row].T
        return np.stack([own[:, one, other].T, own[:, other, one].T])

    shape = (2, len(check_maps(reader, maps)))
    made_of = [own.tolist() for own in words]
    return _read_rows(reader, sentences, maps, both_ways, counts, shape, made_of)


# Of a sentence's row, states [layers + 1, W, D] and maps [C, W, W], rows_of makes [P, n, …].
def _read_rows(
    reader: WordReader,
    sentences: Sequence[Sentence],
    maps: str | None,
    rows_of: Callable[[int, Floats, Floats], Floats],
    counts: Sequence[int],  # of rows for each sentence
    shape: tuple[int, ...],  # of the whole without its rows, (P, …)
    made_of: Any,  # what the rows depend on beside model and sentences
) -> Any:  # mapped from a file, whose name is a digest of what made them
    """Read sentences once, and keep some rows of each; the same call finds them again."""
    starts = [0, *np.cumsum(counts).tolist()]
    model = [model_digest(reader.model), is_jumping(reader.model), maps]
    texts = [sentence.words for sentence in sentences]
    path = Path(reader.folder) / f"{digest([VERSION, model, texts, starts, made_of])[:16]}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        encoded, words = _encode(reader, sentences)
        read = sorted(np.flatnonzero(counts).tolist(), key=lambda row: -encoded.lengths[row])
        heads = () if maps is None else check_maps(reader, maps)
        # What is too large fails at once.
        found = read_texts(reader.model, encoded, read, reader.batch_size, maps, heads)
        size = shape[0], starts[-1], *shape[1:]
        with replacing(path) as temporary:
            kept = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=size)
            for row, states, own in track_progress(found, "Reading sentences", len(read)):
                tokens = torch.tensor(words[row], device=states.device)
                _, states, own = pool_words(tokens, states, own)
                both = (part.float().cpu().numpy() for part in (states, own))
                kept[:, starts[row] : starts[row + 1]] = rows_of(row, *both)
            kept.flush()
    return np.load(path, mmap_mode="r", allow_pickle=False)


def random_weights(model: PreTrainedModel, seed: int = 0, jumping: bool = False) -> PreTrainedModel:
    """Return a model of the same shape without any training, with its jump heads if asked for."""
    from transformers import AutoModel

    settings = attached_config(model)
    # Heads of ours are no part of a configuration, but the name of their attention is.
    own = {} if settings is None else {"attn_implementation": "sdpa"}
    with torch.random.fork_rng(), setting(plain, True):
        torch.manual_seed(seed)
        found: Any = AutoModel.from_config(deepcopy(model.config), **own)  # type: ignore[no-untyped-call]
    twin: PreTrainedModel = found.eval().to(model.device)
    return attach(twin, settings) if jumping and settings is not None else twin
