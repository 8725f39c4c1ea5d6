"""Learned tables of positions: make them longer, and refuse inputs that are longer than them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from jat_graph.checks.numbers import check_integer
from jat_graph.hf.modules import model_parts, transformer_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

ModelT = TypeVar("ModelT", bound=nn.Module)

TABLES = ("position_embeddings", "embed_positions", "wpe")
COUNTERS = ("position_ids", "token_type_ids")  # buffers with one entry a row of the table


@dataclass(frozen=True)
class PositionTable:
    """A learned table of absolute positions."""

    part: PreTrainedModel  # the innermost one that owns it
    owner: nn.Module  # the module that holds it, and buffers of its length
    rows: nn.Embedding  # the table
    offset: int = field(init=False)  # added to the positions that it is given: 2 in BART and OPT
    first: int = field(init=False)  # row of the first token; RoBERTa's is the one after padding's

    def __post_init__(self) -> None:
        offset, padding = int(getattr(self.rows, "offset", 0)), self.rows.padding_idx
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "first", offset if padding is None else padding + 1)

    @property
    def length(self) -> int:
        """Tokens that the table has rows for."""
        return self.rows.num_embeddings - self.first

    def check_length(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Refuse an input that the table has no rows for, before anything runs.

        Values are only looked at where the input is wider than the table, which padding allows.
        """
        names = inspect.signature(type(self.part).forward).parameters
        given = dict(zip(list(names)[1:], args, strict=False)) | kwargs
        tokens = given.get("input_ids")
        tokens = given.get("inputs_embeds") if tokens is None else tokens
        if tokens is None:
            return
        cache = given.get("past_key_values")
        past = 0 if cache is None else cache.get_seq_length()
        if tokens.size(1) + past <= self.length or torch.compiler.is_compiling():
            return
        wanted = self._rows_wanted(given, past + tokens.size(1), past)
        if wanted > self.rows.num_embeddings:
            raise ValueError(
                f"{type(self.part).__name__} has learned positions for {self.length} tokens, "
                f"got {wanted - self.first}; jat_graph.hf.resize_position_embeddings makes room"
            )

    def _rows_wanted(self, given: dict[str, Any], width: int, past: int) -> int:
        """Return how many rows an input needs, whose width counts padding."""
        positions, ids, mask = (
            given.get(name) for name in ("position_ids", "input_ids", "attention_mask")
        )
        if positions is not None:
            return int(positions.max()) + 1 + self.offset
        if self.rows.padding_idx is not None and ids is not None:
            width = past + int((ids != self.rows.padding_idx).sum(-1).max())
        elif mask is not None and _counts_mask(self.rows):
            width = int(mask.sum(-1).max())
        return width + self.first

    def enlarge(self, length: int) -> None:
        """Repeat the rows of the tokens until there are enough."""
        old = self.rows.num_embeddings
        order = torch.arange(self.first + length, device=self.rows.weight.device)
        tokens = (order - self.first) % self.length + self.first
        order = torch.where(order < self.first, order, tokens)
        weight = self.rows.weight
        self.rows.weight = nn.Parameter(weight.detach()[order], weight.requires_grad)
        self.rows.num_embeddings = len(order)
        for name in COUNTERS:
            counter = getattr(self.owner, name, None)
            if isinstance(counter, Tensor) and counter.size(-1) == old:
                setattr(self.owner, name, _enlarged(name, counter, len(order)))


def resize_position_embeddings(
    model: ModelT, max_length: int, tokenizer: PreTrainedTokenizerBase | None = None
) -> ModelT:
    """Give a model's learned position table rows for longer inputs, in place.

    The rows of the old tokens are repeated, so that near ones keep the distances that they were
    trained with. Rows before the first token (RoBERTa, BART) stay alone. The configuration's
    ``max_position_embeddings`` follows, and a tokenizer's ``model_max_length`` where it is given.

    Args:
        model: A model of transformers, or a PEFT model around one, with or without jump heads.
        max_length: Tokens that the model shall take, at least those that it takes.
        tokenizer: Its tokenizer, which then cuts texts at the new length. Without it a tokenizer
            goes on to cut at the old one. (default: None)

    Returns:
        The same model.

    Raises:
        ValueError: If the model has no learned position table, or a longer one.

    Reference:
        Beltagy et al., *Longformer: The Long-Document Transformer*, 2020, section 5.
    """
    check_integer("max_length", max_length, least=1)
    if tokenizer is not None and not hasattr(tokenizer, "model_max_length"):
        raise ValueError(f"tokenizer must be one of transformers, got {tokenizer!r}")
    base = transformer_of(model)
    tables = list(position_tables(base))
    if not tables:
        raise ValueError(
            f"{type(base).__name__} has no learned position table to stretch; with rotary or "
            "relative positions the input may be longer as it is"
        )
    longest = max(table.length for table in tables)
    if max_length < longest:
        raise ValueError(
            f"max_length must be at least the {longest} tokens that {type(base).__name__} takes, "
            f"got {max_length}"
        )
    configs = {id(table.part.config): (table.part.config, table.length) for table in tables}
    for table in tables:
        table.enlarge(max_length)
    for config, length in configs.values():
        config.max_position_embeddings += max_length - length
    if tokenizer is not None:
        tokenizer.model_max_length = max_length
    return model


def most_positions(config: PreTrainedConfig) -> int | None:
    """How many tokens a model has positions for; None without a limit, as XLNet's -1 says."""
    number: int | None = getattr(config, "max_position_embeddings", None)
    return number if number is not None and number > 0 else None


def position_tables(model: PreTrainedModel) -> Iterator[PositionTable]:
    """Yield the learned position tables of a model that its configuration counts."""
    seen: set[nn.Module] = set()
    for part in reversed(list(model_parts(model))):  # the innermost first
        for owner in part.modules():
            for name, rows in owner.named_children():
                if name in TABLES and rows not in seen and isinstance(rows, nn.Embedding):
                    seen.add(rows)
                    if _is_counted(part, rows):
                        yield PositionTable(part, owner, rows)


def _is_counted(part: PreTrainedModel, rows: nn.Embedding) -> bool:
    number = most_positions(part.config)
    learned = "Sinusoidal" not in type(rows).__name__
    return learned and rows.num_embeddings - int(getattr(rows, "offset", 0)) == number


def _counts_mask(rows: nn.Embedding) -> bool:
    """Tell whether a table numbers the tokens that are no padding (OPT)."""
    return "attention_mask" in inspect.signature(rows.forward).parameters


def _enlarged(name: str, counter: Tensor, number: int) -> Tensor:
    """Return the buffer ``[1, number]``: positions count on, types stay 0."""
    if name == "position_ids":
        return torch.arange(number, dtype=counter.dtype, device=counter.device).unsqueeze(0)
    return counter.new_zeros(1, number)
