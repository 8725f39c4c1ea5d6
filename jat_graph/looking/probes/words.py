"""What a model makes of the words of sentences: their states, and what its heads give to them.

A word's state is the mean over its tokens. What goes to a word is the sum over its tokens, what
comes from it the mean over them; of scores it is the mean both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.files import replacing
from jat_graph.core.numbers import check_choice, check_indices, check_integer
from jat_graph.core.progress import track_progress
from jat_graph.hf import attach, attached_config
from jat_graph.hf.modules import attention_modules
from jat_graph.hf.names import built_plain
from jat_graph.looking.data.reading import (
    ATTENTION,
    MAPS,
    PROPAGATED,
    SCORES,
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
from jat_graph.looking.probes.findings import Floats

VERSION = 2  # of what is written, and how it is made


class Rows(NamedTuple):
    """Numbers of all sentences, one sentence after the other."""

    values: Floats  # mapped from a file, [P, N, …]: P parts, as layers are, of N rows each
    starts: Sequence[int]  # where the rows of each sentence begin, and where the last ones end
    left_out: tuple[int, ...]  # sentences that the model cannot read whole, whose rows are 0
    name: str  # a digest of what made them


@dataclass(frozen=True)
class WordReader:
    """A model that probes ask, and where they keep what it makes of words.

    Args:
        model: A model of transformers, with jump heads or without; it reads in evaluation mode.
        tokenizer: Its tokenizer, a fast one.
        folder: Where states, what heads give, and trained probes are kept and found again. States
            take 1.5 KB for each word and layer at a width of 384.
        batch_size: Most sentences that the model reads at a time. (default: 32)
        maps: What is read of heads, which probes say themselves. (default: None, states alone)

    Raises:
        ValueError: If a number is not in its range, or the model has no such heads.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    folder: str | Path
    batch_size: int = 32
    maps: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the model does not have."""
        check_integer("batch_size", self.batch_size, least=1)
        if self.maps is not None:
            check_choice("maps", self.maps, MAPS)
            self.heads  # noqa: B018  # refuses a model without them

    @property
    def heads(self) -> tuple[Head, ...]:
        """Layer and head of each map."""
        if self.maps is None:
            return ()
        return attention_heads(self.model) if self.maps == ATTENTION else jump_heads(self.model)


def check_layers(reader: WordReader, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Return layers in rising order, 0 for the embeddings; None means all."""
    depth = reader.model.config.num_hidden_layers
    found = tuple(range(depth + 1)) if layers is None else check_indices("layers", layers)
    if found[-1] > depth:
        raise ValueError(f"layers must be at most {depth}, got {found[-1]}")
    return found


# Of a sentence's row, states [layers + 1, W, D] and maps [C, W, W], rows_of makes [P, n, …].
def read_rows(
    reader: WordReader,
    sentences: Sequence[Sequence[str]],
    rows_of: Callable[[int, Floats, Floats], Floats],
    counts: Sequence[int],  # of rows for each sentence
    shape: tuple[int, ...],  # of the whole without its rows, (P, …)
    made_of: Any,  # what the rows depend on beside model and sentences
) -> Rows:
    """Read sentences once, and keep some rows of each; the same call finds them again."""
    encoded = encode_texts(sentences, reader.model, reader.tokenizer, None, by_words=True)
    assert encoded.words is not None
    fits = [
        len(set(own) - {-1}) == len(words)
        for own, words in zip(encoded.words, sentences, strict=True)
    ]
    read, left_out = (np.flatnonzero(own).tolist() for own in (fits, np.logical_not(fits)))
    if not read:
        raise ValueError("sentences must fit the model, got none that it can take whole")
    starts = [0, *np.cumsum(counts).tolist()]
    model = [model_digest(reader.model), is_jumping(reader.model), reader.maps]
    name = digest([VERSION, model, [list(words) for words in sentences], starts, made_of])[:16]
    path = Path(reader.folder) / f"{name}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        read.sort(key=lambda row: -encoded.lengths[row])  # what is too large fails at once
        options = reader.batch_size, reader.maps, reader.heads
        found = read_texts(reader.model, encoded, read, *options)
        scores = reader.maps in (SCORES, PROPAGATED)
        hides = scores and any(entry.is_causal for entry in attention_modules(reader.model))
        size = shape[0], starts[-1], *shape[1:]
        with replacing(path) as temporary:
            kept = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=size)
            for row, states, maps in track_progress(found, "Reading sentences", len(read)):
                words = torch.tensor(encoded.words[row], device=states.device)
                _, states, maps = pool_words(words, states, maps, both_mean=scores)
                if hides:  # scores of words that a decoder never looks at
                    later = torch.ones_like(maps[0], dtype=torch.bool).triu(1)
                    maps = maps.masked_fill(later, -torch.inf)
                both = (part.float().cpu().numpy() for part in (states, maps))
                kept[:, starts[row] : starts[row + 1]] = rows_of(row, *both)
            kept.flush()
    values = np.load(path, mmap_mode="r", allow_pickle=False)
    return Rows(values, starts, tuple(left_out), name)


def read_states(reader: WordReader, sentences: Sequence[Sequence[str]]) -> Rows:
    """Keep the states of all words after each layer, [layers + 1, N, D]."""
    shape = reader.model.config.num_hidden_layers + 1, reader.model.config.hidden_size
    counts = [len(words) for words in sentences]
    return read_rows(reader, sentences, lambda _, states, __: states, counts, shape, "states")


def random_weights(model: PreTrainedModel, seed: int = 0, jumping: bool = False) -> PreTrainedModel:
    """Return a model of the same shape without any training, with its jump heads if asked for."""
    from transformers import AutoModel

    settings = attached_config(model)
    # Heads of ours are no part of a configuration, but the name of their attention is.
    own = {} if settings is None else {"attn_implementation": "sdpa"}
    with torch.random.fork_rng(), built_plain():
        torch.manual_seed(seed)
        found: Any = AutoModel.from_config(deepcopy(model.config), **own)  # type: ignore[no-untyped-call]
    twin: PreTrainedModel = found.eval().to(model.device)
    return attach(twin, settings) if jumping and settings is not None else twin
