"""A text as a model with jump heads reads it, checked before the model is run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jat_graph.config import JatConfig
from jat_graph.hf import attached_config
from jat_graph.hf.capture import jumping_heads
from jat_graph.hf.positions import most_positions
from jat_graph.inspection.choice import Indices, choose_heads, choose_tokens
from jat_graph.inspection.reports import Token
from jat_graph.inspection.tracing import HeadTrace, capture_batch

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Reading:
    """A text, the model that reads it, and what of that is looked at."""

    text: str
    tokens: tuple[Token, ...]
    named: frozenset[int]  # positions that are not hidden as special
    shown: tuple[int, ...]  # and those that are looked at, in rising order
    config: JatConfig
    heads: tuple[tuple[int, int], ...]  # layers and heads that are looked at
    model: PreTrainedModel = field(repr=False)
    inputs: Any = field(repr=False)

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        text: str,
        *,
        layers: Indices = None,
        heads: Indices = None,
        tokens: range | None = None,
        special_tokens: bool = False,
    ) -> Reading:
        """Tokenize a text, and refuse what is not there to be looked at."""
        config = attached_config(model)
        if config is None:
            raise ValueError("model must have jump heads, got none: attach them first")
        chosen = choose_heads(jumping_heads(model), layers, heads)
        if not text.strip():
            raise ValueError(f"text must not be empty, got {text!r}")
        inputs = tokenizer(
            text, return_special_tokens_mask=True, return_tensors="pt", verbose=False
        )
        special = inputs.pop("special_tokens_mask")[0].bool().tolist()
        check_length(model, tokenizer, len(special))
        span = choose_tokens(tokens, len(special))
        named = frozenset(n for n, hidden in enumerate(special) if special_tokens or not hidden)
        shown = tuple(position for position in span if position in named)
        if not shown:
            raise ValueError("tokens must not all be special, unless special tokens are shown")
        names = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist())
        return cls(
            text,
            tuple(Token(n, readable(tokenizer, name)) for n, name in enumerate(names)),
            named,
            shown,
            config,
            chosen,
            model,
            inputs,
        )

    @property
    def shown_tokens(self) -> tuple[Token, ...]:
        """The tokens that are looked at."""
        return tuple(self.tokens[position] for position in self.shown)

    def traces(self) -> Iterator[HeadTrace]:
        """Run the model, and yield what one head after the other did."""
        layers = {layer.layer: layer for layer in capture_batch(self.model, self.inputs)}
        for layer, head in self.heads:
            yield HeadTrace(layers[layer].of_head(head))


def check_length(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, length: int) -> None:
    """Refuse a text of more tokens than a model takes."""
    positions = most_positions(model.config) or length
    limit = min(tokenizer.model_max_length, positions)
    if length > limit:
        raise ValueError(f"text must have at most {limit} tokens for this model, got {length}")


def readable(tokenizer: PreTrainedTokenizerBase, name: str) -> str:
    """Turn a byte-level piece into what it says; a word piece keeps its ``##``."""
    return tokenizer.convert_tokens_to_string([name]).strip() or name
