"""Texts as tokens and words, in the form that a model is called with."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, islice
from typing import TYPE_CHECKING, TypeAlias

from jat_graph.checks.numbers import check_integer
from jat_graph.hf.positions import most_positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Texts: TypeAlias = Sequence[str] | Sequence[Sequence[str]]


@dataclass(frozen=True)
class EncodedTexts:
    """Texts after the tokenizer: a row for each."""

    inputs: dict[str, list[list[int]]]  # what the model takes, by name
    words: list[list[int]] | None  # the word of each token, -1 for none; where nodes are words
    num_words: list[int] | None  # of the whole text, not only of what is left of it

    @cached_property
    def lengths(self) -> list[int]:
        """Tokens of each text."""
        return [len(row) for row in self.inputs["input_ids"]]

    def batches(self, rows: Sequence[int], size: int) -> Iterator[list[int]]:
        """Yield up to ``size`` neighbours of one length: some models fail on much padding."""
        for _, same in groupby(rows, self.lengths.__getitem__):
            while some := list(islice(same, size)):
                yield some


def encode_texts(
    texts: Texts,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None,
    by_words: bool,
) -> EncodedTexts:
    """Cut texts into tokens, no more than the model takes, and find the words that these are of."""
    split = _check_texts(texts)
    room = min(tokenizer.model_max_length, most_positions(model.config) or 2**31 - 1)
    if max_length is not None:
        least = tokenizer.num_special_tokens_to_add() + 1
        check_integer("max_length", max_length, least=least, below=room + 1)
    if (by_words or split) and not tokenizer.is_fast:
        raise ValueError(
            f"tokenizer must be a fast one to know words, got {type(tokenizer).__name__}"
        )
    encoded = tokenizer(
        # Given word by word, byte-level tokenizers would read "the bank" as "thebank".
        [" ".join(text) if split else text for text in texts],
        truncation=True,
        max_length=max_length or room,
        return_attention_mask=True,
        return_offsets_mapping=split,
        verbose=False,
    )
    offsets = encoded.pop("offset_mapping", None)
    inputs = {name: encoded[name] for name in encoded}
    empty = next((row for row, ids in enumerate(inputs["input_ids"]) if not ids), None)
    if empty is not None:
        raise ValueError(f"texts[{empty}] must have a token, got {texts[empty]!r}")
    if not by_words:
        return EncodedTexts(inputs, None, None)
    if split:
        words = []
        for text, spans in zip(texts, offsets, strict=True):  # the word by where a token ends
            ends = list(accumulate(len(word) + 1 for word in text))  # with the space after it
            words.append([bisect(ends, end - 1) if end > start else -1 for start, end in spans])
        return EncodedTexts(inputs, words, [len(text) for text in texts])
    found = [encoded.word_ids(row) for row in range(len(texts))]
    words = [[-1 if word is None else word for word in row] for row in found]
    return EncodedTexts(inputs, words, [max(row) + 1 for row in words])


def _check_texts(texts: Texts) -> bool:
    """Tell whether the texts are lists of words."""
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not texts:
        raise ValueError(f"texts must be a sequence of one or more texts, got {texts!r}")
    split = not isinstance(texts[0], str)
    for row, text in enumerate(texts):
        words = [] if isinstance(text, str) else text
        fits = isinstance(text, str) is not split and isinstance(words, list | tuple)
        if not fits or not all(isinstance(word, str) for word in words):
            wanted = "a list of words" if split else "a string"
            raise ValueError(f"texts[{row}] must be {wanted} like texts[0], got {text!r}")
    return split
