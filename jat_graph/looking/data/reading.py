"""What models make of texts: tokens, states, and what heads have; graphs of it on disk."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, islice
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch_geometric.data import Data
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.files import check_unicode, replacing
from jat_graph.core.numbers import check_integer
from jat_graph.hf.adapter import find_attachment
from jat_graph.hf.capture import heads_by_layer
from jat_graph.hf.interface import setting_of
from jat_graph.hf.jumps import AttachedJumps
from jat_graph.hf.modules import attention_modules, serves_several_layers
from jat_graph.hf.positions import most_positions
from jat_graph.looking.inspection.graphs import layer_graph
from jat_graph.looking.inspection.tracing import run_model

Head: TypeAlias = tuple[int, int]  # layer and head

ATTENTION, GRAPH = MAPS = ("attention", "graph")  # of any model, and of jump heads


def read_texts(
    model: PreTrainedModel,
    texts: EncodedTexts,
    rows: Sequence[int],
    batch_size: int,
    maps: str | None,
    heads: Sequence[Head],
) -> Iterator[tuple[int, Tensor, Tensor]]:  # row, [layers + 1, n, D], [C, n, n]
    """Yield the states of each text, and what chosen heads have there; no heads without maps."""
    attention = maps == ATTENTION
    kind = None if maps in (None, ATTENTION) else AttachedJumps
    for some in texts.batches(rows, batch_size):
        tables = texts.inputs.items()
        inputs = {name: torch.tensor([table[row] for row in some]) for name, table in tables}
        outputs, layers = run_model(model, inputs, attention=attention, states=True, kind=kind)
        states = torch.stack(outputs.hidden_states, dim=1)
        dtype = torch.promote_types(states.dtype, torch.float32)
        known: dict[Head, Tensor] = {}
        for layer in layers:
            own = [(layer.layer, head) for head in layer.heads]
            if set(own) & set(heads):
                with torch.no_grad():
                    weights = layer_graph(layer).weights
                known.update(zip(own, weights.unbind(1), strict=True))
        if attention:
            known = {own: outputs.attentions[own[0]][:, own[1]] for own in heads}
        for index, row in enumerate(some):
            nothing = states.new_zeros(0, states.size(2), states.size(2))
            found = torch.stack([known[head][index] for head in heads]) if heads else nothing
            yield row, states[index].to(dtype), found.to(dtype)


def pool_words(
    words: Tensor,  # [n], -1 for tokens of no word
    hidden: Tensor,  # [..., n, D]
    maps: Tensor,  # [C, n, n]
) -> tuple[Tensor, Tensor, Tensor]:  # [w], [..., w, D], [C, w, w]
    """Return the numbers of words, their states and maps."""
    # What goes to a word is the sum over its tokens, what comes from one the mean.
    numbers = torch.unique(words[words >= 0])
    members = (numbers[:, None] == words).to(hidden.dtype)
    mean = members / members.sum(1, keepdim=True)
    return numbers, mean @ hidden, mean @ maps @ members.T


def check_model(model: Any) -> None:
    """Refuse what is no model of one stack of layers."""
    name = type(model).__name__
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"model must be a model of transformers, got {name}")
    if model.config.is_encoder_decoder:
        raise ValueError(f"model must be one stack of layers, got a {name}: pass its encoder")


def check_fast(tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuse a tokenizer that does not say where words are."""
    if not tokenizer.is_fast:
        got = type(tokenizer).__name__
        raise ValueError(f"tokenizer must be a fast one, which maps tokens to words, got {got}")


def attention_heads(model: PreTrainedModel) -> tuple[Head, ...]:
    """All heads of a model."""
    names = ("num_hidden_layers", "num_attention_heads")
    layers, heads = (getattr(model.config, name, 0) for name in names)
    if not heads:
        named = [(n, m) for n, m in model.named_children() if isinstance(m, PreTrainedModel)]
        parts = ", ".join(n for n, m in named if hasattr(m.config, names[1]))
        got = f"{type(model).__name__}{parts and f': pass a part of it, {parts}'}"
        raise ValueError(f"model must be one stack of layers with heads, got a {got}")
    return tuple((layer, head) for layer in range(layers) for head in range(heads))


def jump_heads(model: PreTrainedModel) -> tuple[Head, ...]:
    """The heads of a model that jump, if it has some."""
    known = heads_by_layer(model)
    if not known:
        raise ValueError("model must have jump heads for edges='jumps', got none: attach them")
    if shares_modules(model):
        raise ValueError("edges must be 'attention' where layers share a module, got 'jumps'")
    return tuple((layer, head) for layer, heads in sorted(known.items()) for head in heads)


def shares_modules(model: PreTrainedModel) -> bool:
    """Tell whether layers of a model share one module for attention."""
    return serves_several_layers([m for m in attention_modules(model) if m.left_alone is None])


def check_heads(heads: Sequence[Head], known: tuple[Head, ...]) -> tuple[Head, ...]:
    """Return pairs of layer and head, of those that there are."""
    pairs: list[Any] = list(heads) if isinstance(heads, Sequence) else []
    chosen = [head for head in known if head in pairs or list(head) in pairs]
    if not pairs or len(chosen) != len(pairs):
        wanted = f"different pairs (layer, head) out of the {len(known)} of the model"
        raise ValueError(f"heads must be {wanted}, got {heads!r}")
    return tuple((layer, head) for layer, head in heads)


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
    if by_words or split:
        check_fast(tokenizer)
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
    words = list[list[int]]()
    sizes = list[int]()
    for row, text in enumerate(texts):
        if split:  # the word by where a token ends, with the space after it
            ends = list(accumulate(len(word) + 1 for word in text))
            own = [bisect(ends, end - 1) if end > start else -1 for start, end in offsets[row]]
        else:
            own = [-1 if word is None else word for word in encoded.word_ids(row)]
        words.append(own)
        sizes.append(len(text) if split else max(own) + 1)
    return EncodedTexts(inputs, words, sizes)


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
        check_unicode(f"texts[{row}]", text)
    return split


def digest(content: Any) -> str:
    """Return a digest of what JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def model_digest(model: PreTrainedModel) -> str:
    """Return a digest of a model's configuration, without where it lies, and of its weights."""
    config = {k: v for k, v in model.config.to_dict().items() if k != "_name_or_path"}
    seen = hashlib.sha256(digest(config).encode())
    for name, tensor in sorted(model.state_dict().items()):
        seen.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        seen.update(raw.numpy())
    return seen.hexdigest()


def is_jumping(model: PreTrainedModel) -> bool:
    """Return whether a model has jump heads that are not switched off."""
    attachment = find_attachment(model)
    return attachment is not None and bool(setting_of(attachment, "enabled"))


def write_graphs(path: Path, graphs: Iterable[Data]) -> None:
    """Write graphs; the file appears whole or not at all."""
    from safetensors.torch import save_file

    tensors = {
        f"{number}.{name}": tensor.contiguous()
        for number, graph in enumerate(graphs)
        for name, tensor in graph.to_dict().items()
    }
    with replacing(path) as temporary:
        save_file(tensors, temporary)


def read_graphs(path: Path) -> list[Data]:
    """Read the graphs of a file; their tensors stay in it until somebody looks at them."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged, delete it: {error}") from None
    graphs: dict[int, Data] = {}
    for name, tensor in tensors.items():
        number, _, field = name.partition(".")
        graphs.setdefault(int(number), Data())[field] = tensor
    return [graphs[number] for number in sorted(graphs)]
