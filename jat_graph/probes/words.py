"""What a model makes of the words of sentences: their states, and what its heads give to them.

A word's state is the mean over its tokens. What goes to a word is the sum over its tokens, what
comes from it the mean over them; of scores it is the mean both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from jat_graph.attention.jump_heads import JumpHeads
from jat_graph.attention.propagation import Given, head_groups
from jat_graph.checks.numbers import check_choice, check_indices, check_integer
from jat_graph.data.reading import Head, attention_heads, jump_heads
from jat_graph.data.texts import EncodedTexts, encode_texts
from jat_graph.hf import CapturedLayer, capture_scores
from jat_graph.inspection.graphs import layer_graph
from jat_graph.inspection.tracing import (
    attention_of,
    evaluating,
    giving_attention,
    model_inputs,
)
from jat_graph.adjacency.scores import attention_scores

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Words: TypeAlias = Sequence[Sequence[str]]

ATTENTION, SCORES, PROPAGATED, GRAPH = MAPS = ("attention", "scores", "propagated", "graph")


@dataclass(frozen=True)
class WordReading:
    """What a model made of one sentence of W words.

    Args:
        row: The place of the sentence among those that were read.
        states: After the embeddings and after each layer, ``[layers + 1, W, D]``.
        maps: What each head gives from word i to word k, ``[C, W, W]``; None if not asked for.
    """

    row: int
    states: Tensor
    maps: Tensor | None


@dataclass(frozen=True)
class WordReader:
    """A model in evaluation mode, and what of it is read.

    Args:
        model: A model of transformers, with jump heads or without.
        tokenizer: Its tokenizer, a fast one.
        maps: ``"attention"``, probabilities as the model has them, after jumps; of jump heads
            also ``"scores"`` before propagation, ``"propagated"`` ones, and the ``"graph"``: hard
            votes, or the walk over stones. None for states alone. (default: None)
        batch_size: Most sentences that the model reads at a time. (default: 32)
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    maps: str | None = None
    batch_size: int = 32

    def __post_init__(self) -> None:
        """Refuse what the model does not have."""
        check_integer("batch_size", self.batch_size, least=1)
        if self.maps is not None:
            check_choice("maps", self.maps, MAPS)
            self.heads  # noqa: B018  # refuses a model without them

    @property
    def heads(self) -> tuple[Head, ...]:
        """Layer and head of each map."""
        known = attention_heads if self.maps == ATTENTION else jump_heads
        return known(self.model)

    def plan(self, sentences: Words) -> WordPlan:
        """Cut sentences into tokens, and say in which order they will be read."""
        encoded = encode_texts(sentences, self.model, self.tokenizer, None, by_words=True)
        return WordPlan.of(encoded, self.batch_size)

    def read(self, plan: WordPlan, first: int = 0) -> Iterator[list[WordReading]]:
        """Yield what the model makes of each batch, from a batch on."""
        shows = giving_attention(self.model) if self.maps == ATTENTION else nullcontext()
        with evaluating(self.model), shows, torch.no_grad():
            for rows in plan.batches[first:]:
                yield self._batch(plan.encoded, rows)

    def _batch(self, encoded: EncodedTexts, rows: list[int]) -> list[WordReading]:
        hidden, maps = self._run(encoded.inputs_of(rows))
        assert encoded.words is not None
        found = []
        for place, row in enumerate(rows):
            words = torch.tensor(encoded.words[row], device=hidden.device)
            own = None if maps is None else _word_maps(maps[place], words, self.maps)
            found.append(WordReading(row, (_mean(words) @ hidden[place]).cpu(), own))
        return found

    def _run(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Run the model on sentences of one length: [B, layers + 1, L, D] and [B, C, L, L]."""
        inputs = model_inputs(self.model, batch) | {"output_hidden_states": True}
        if self.maps in (None, ATTENTION):
            outputs = self.model(**inputs, output_attentions=self.maps == ATTENTION)
            rows = attention_of(outputs) if self.maps == ATTENTION else None
            maps = None if rows is None else torch.cat(rows, dim=1).float()
        else:
            with capture_scores(self.model) as layers:
                outputs = self.model(**inputs)
            maps = torch.cat([_layer_maps(layer, self.maps) for layer in layers], dim=1).float()
        return torch.stack(outputs.hidden_states, dim=1).float(), maps


@dataclass(frozen=True)
class WordPlan:
    """Sentences as tokens, and the batches in which they are read: of one length each.

    What the model cannot take whole, or has a word without a token, is left out.
    """

    encoded: EncodedTexts
    batches: list[list[int]]
    left_out: tuple[int, ...]

    @classmethod
    def of(cls, encoded: EncodedTexts, batch_size: int) -> WordPlan:
        """Put the longest first: what does not fit into memory then fails at once."""
        assert encoded.words is not None and encoded.num_words is not None
        whole = [
            len(set(words) - {-1}) == number
            for words, number in zip(encoded.words, encoded.num_words, strict=True)
        ]
        order = sorted(range(len(whole)), key=lambda row: -encoded.lengths[row])
        kept = [row for row in order if whole[row]]
        if not kept:
            raise ValueError("sentences must fit the model, got none that it can take whole")
        left_out = tuple(row for row, fits in enumerate(whole) if not fits)
        return cls(encoded, list(encoded.batches(kept, batch_size)), left_out)


def check_layers(model: PreTrainedModel, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Return layers in rising order, 0 for the embeddings; None means all."""
    depth = model.config.num_hidden_layers
    if layers is None:
        return tuple(range(depth + 1))
    found = check_indices("layers", layers)
    if found[-1] > depth:
        raise ValueError(f"layers must be at most {depth}, got {found[-1]}")
    return found


def _membership(words: Tensor) -> Tensor:  # [n], -1 for tokens of no word -> [W, n]
    numbers = torch.arange(int(words.max()) + 1, device=words.device)
    return (numbers[:, None] == words).float()


def _mean(words: Tensor) -> Tensor:  # [W, n]
    members = _membership(words)
    return members / members.sum(1, keepdim=True)


def _word_maps(maps: Tensor, words: Tensor, kind: str | None) -> Tensor:  # [C, L, L] -> [C, W, W]
    mean = _mean(words)
    to = mean if kind in (SCORES, PROPAGATED) else _membership(words)
    return (mean @ maps @ to.T).cpu()


def _layer_maps(layer: CapturedLayer, kind: str | None) -> Tensor:  # [B, H, L, L]
    """What the jump heads of a layer have."""
    if kind == GRAPH:
        return layer_graph(layer).weights
    if kind == SCORES:
        return attention_scores(layer.query, layer.key, layer.scale)
    jumping = JumpHeads.everyone(layer.config, len(layer.heads))
    groups = head_groups(
        layer.query,
        layer.key,
        layer.key,
        jumping,
        mask=layer.mask,
        scale=layer.scale,
        given=Given(layer.strength, layer.conv),
    )
    places = torch.tensor([head for group in groups for head in group.heads])
    maps = [attention_scores(group.query, group.key, layer.scale) for group in groups]
    return torch.cat(maps, dim=1)[:, places.argsort()]
