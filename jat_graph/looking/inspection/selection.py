"""Which heads, tokens and edges are looked at; what is not there is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.files import check_unicode
from jat_graph.core.numbers import check_indices
from jat_graph.hf.modules import transformer_of
from jat_graph.hf.positions import most_positions

Indices: TypeAlias = int | Sequence[int] | None  # one, some, or all
Places: TypeAlias = range | str | None  # a span of positions, words of the text, or all


@dataclass(frozen=True)
class Token:
    """A token of the text.

    Args:
        index: Position among the model's tokens, special ones included.
        text: What it says.
    """

    index: int
    text: str


@dataclass(frozen=True)
class EncodedText:
    """A text as tokens of a model, and those of them that are looked at."""

    text: str
    inputs: Any
    tokens: tuple[Token, ...]
    named: frozenset[int]  # positions that are not hidden as special
    shown: tuple[Token, ...]  # and tokens that are looked at, in rising order

    def cut(self, matrix: Tensor) -> Tensor:  # [L, L] -> [n, n]
        """Return what a matrix has for the tokens that are looked at."""
        keep = [token.index for token in self.shown]
        return matrix if len(keep) == len(matrix) else matrix[keep][:, keep]


def encode_text(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: str | Sequence[str],  # or its words
    tokens: Places = None,
    special_tokens: bool = False,
) -> EncodedText:
    """Cut a text into tokens, and refuse what the model does not take whole."""
    is_words = not isinstance(text, str)
    check_unicode("text", text)
    title = " ".join(text) if is_words else str(text)
    if not title.strip():
        raise ValueError(f"text must not be empty, got {title!r}")
    inputs = tokenizer(
        list(text) if is_words else title,
        is_split_into_words=is_words,
        return_special_tokens_mask=True,
        return_tensors="pt",
        verbose=False,
    )
    special = inputs.pop("special_tokens_mask")[0].bool().tolist()
    length = len(special)
    limit = min(tokenizer.model_max_length, most_positions(transformer_of(model).config) or length)
    if length > limit:
        raise ValueError(f"text must have at most {limit} tokens for this model, got {length}")
    named = frozenset(n for n, hidden in enumerate(special) if special_tokens or not hidden)
    names = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
    # A byte-level piece becomes what it says; a word piece keeps its ##.
    texts = (tokenizer.convert_tokens_to_string([name]).strip() or name for name in names)
    every = tuple(Token(n, said) for n, said in enumerate(texts))
    shown = tuple(every[index] for index in _places(every, tokens) if index in named)
    if not shown:
        raise ValueError("tokens must not all be special, unless special tokens are shown")
    return EncodedText(title, inputs, every, named, shown)


def _places(every: Sequence[Token], tokens: Places) -> Sequence[int]:
    """Return the positions of a span, or of words, in rising order."""
    if isinstance(tokens, str):
        return sorted({index for word in tokens.split() for index in find_word(every, word)})
    length = len(every)
    tokens = range(len(every)) if tokens is None else tokens
    is_span = isinstance(tokens, range) and tokens.step == 1
    if not is_span or not 0 <= tokens.start < tokens.stop <= length:
        wanted = f"tokens must lie in a text of {length}, as range(0, {length})"
        raise ValueError(f"{wanted}, got {tokens!r}")
    return tokens


def find_word(every: Sequence[Token], word: str) -> list[int]:
    """Return the positions of a word wherever it stands in a text, in any case; of all pieces."""
    texts = [token.text.removeprefix("##").lower() for token in every]
    found = {
        index
        for first in range(len(texts))
        for last in range(first + 1, min(len(texts), first + len(word)) + 1)
        if "".join(texts[first:last]) == word.lower()
        for index in range(first, last)
    }
    if not found:
        raise ValueError(f"tokens must be words of the text, got {word!r}, which is not in it")
    return sorted(found)


def choose_heads(
    known: Mapping[int, tuple[int, ...]],  # the heads of each layer
    layers: Indices,
    heads: Indices,
    kind: str,
) -> tuple[tuple[int, int], ...]:
    """Return the layers and heads that are looked at, in order; each must be there."""
    wanted, own = (
        None if some is None else check_indices(name, (some,) if isinstance(some, int) else some)
        for name, some in (("layers", layers), ("heads", heads))
    )
    for layer in wanted or ():
        if layer not in known:
            raise ValueError(f"layer {layer} must have {kind}heads, got them in {sorted(known)}")
    chosen = known if wanted is None else {layer: known[layer] for layer in wanted}
    there = {head for some in chosen.values() for head in some}
    hint = "; with --set heads=all, in Python heads='all', all jump" * (kind == "jump ")
    for head in own or ():
        if head not in there:
            wanted_head = f"head {head} must be a {kind}head in layers {sorted(chosen)}"
            raise ValueError(f"{wanted_head}, got {sorted(there)}{hint}")
    pairs = ((layer, head) for layer, some in chosen.items() for head in some)
    return tuple((layer, head) for layer, head in pairs if own is None or head in own)


def strongest_edges(gains: Tensor, weights: Tensor, most: int | None = None) -> Tensor:  # [m, 2]
    """Return the edges (i, k) by gain, then weight, then place in the text; the first, or all."""
    edges = weights.nonzero()
    gain, weight = (matrix[edges[:, 0], edges[:, 1]] for matrix in (gains, weights))
    if most is not None and most < len(edges):
        enough = gain >= gain.topk(max(1, most)).values[-1]
        edges, gain, weight = edges[enough], gain[enough], weight[enough]
    order = weight.argsort(descending=True, stable=True)
    order = order[gain[order].argsort(descending=True, stable=True)]
    return edges[order[:most]]
