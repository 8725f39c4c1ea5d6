"""Learned tables of positions: make them longer, and refuse inputs that are longer than them."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from jat_graph.core.numbers import check_integer
from jat_graph.hf.modules import model_parts, transformer_of

ModelT = TypeVar("ModelT", bound=nn.Module)

TABLES = ("position_embeddings", "position_embedding", "embed_positions", "wpe")
COUNTERS = ("position_ids", "token_type_ids")  # buffers with one entry a row of the table


class PositionTable(NamedTuple):
    """A learned table of absolute positions."""

    part: PreTrainedModel  # the innermost one that owns it
    owner: nn.Module  # the module that holds it, and buffers of its length
    rows: nn.Embedding  # the table
    offset: int  # added to the positions that it is given: 2 in BART and OPT
    first: int  # row of the first token; RoBERTa's is the one after padding's

    @property
    def length(self) -> int:
        """Tokens that the table has rows for."""
        return self.rows.num_embeddings - self.first

    def check_length(self, args: Any, kwargs: dict[str, Any]) -> None:
        """Refuse an input that the table has no rows for; padding may be wider than the table."""
        parameters = list(signature(type(self.part).forward).parameters)
        given = dict(zip(parameters[1:], args, strict=False)) | kwargs
        tokens = given.get("input_ids")
        tokens = given.get("inputs_embeds") if tokens is None else tokens
        cache = given.get("past_key_values")
        past = 0 if cache is None else cache.get_seq_length()
        if tokens is None or tokens.size(1) + past <= self.length:
            return
        positions, ids, mask = map(given.get, ("position_ids", "input_ids", "attention_mask"))
        wanted = past + tokens.size(1) + self.first
        if positions is not None:
            wanted = int(positions.max()) + 1 + self.offset
        elif self.rows.padding_idx is not None and ids is not None:
            wanted = past + int((ids != self.rows.padding_idx).sum(-1).max()) + self.first
        elif mask is not None and "attention_mask" in signature(self.rows.forward).parameters:
            wanted = int(mask.sum(-1).max()) + self.first  # OPT
        if wanted > self.rows.num_embeddings:
            raise ValueError(
                f"{type(self.part).__name__} has learned positions for {self.length} tokens, "
                f"got {wanted - self.first}: cut texts by truncation=True, or make room by "
                "jat_graph.hf.resize_position_embeddings"
            )


def resize_position_embeddings(
    model: ModelT, max_length: int, tokenizer: PreTrainedTokenizerBase | None = None
) -> ModelT:
    """Give a model's learned position table rows for longer inputs, in place.

    The rows of the old tokens are repeated, so that near ones keep their distances; those before
    the first token (RoBERTa, BART) stay alone. The configuration's ``max_position_embeddings``
    follows, and a tokenizer's ``model_max_length`` where it is given.

    Args:
        model: A model of transformers, or what holds one, with or without jump heads.
        max_length: Tokens that the model shall take, at least those that it takes.
        tokenizer: Its tokenizer, to cut texts at the new length. (default: None)

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
        others = [path for path, _ in base.named_modules() if path.rpartition(".")[2] in TABLES]
        why = f": max_position_embeddings does not count {', '.join(others)}" if others else ""
        raise ValueError(f"{type(base).__name__} has no learned position table to resize{why}")
    longest = max(table.length for table in tables)
    if max_length < longest:
        raise ValueError(f"max_length must be at least {longest}, got {max_length}")
    configs = {id(table.part.config): (table.part.config, table.length) for table in tables}
    for table in tables:
        rows = table.rows
        first = table.first
        old = table.rows.num_embeddings
        order = torch.arange(first + max_length, device=rows.weight.device)
        order = torch.where(order < first, order, (order - first) % table.length + first)
        rows.weight = nn.Parameter(rows.weight.detach()[order], rows.weight.requires_grad)
        rows.num_embeddings = len(order)
        for name in COUNTERS:
            counter = getattr(table.owner, name, None)
            if isinstance(counter, Tensor) and counter.size(-1) == old:
                counts = torch.arange(len(order), device=counter.device, dtype=counter.dtype)
                counts = counts if name == "position_ids" else torch.zeros_like(counts)
                setattr(table.owner, name, counts.unsqueeze(0))
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
    for part in reversed(model_parts(model)):  # the innermost first
        number = most_positions(part.config)
        for owner in part.modules():
            for name, rows in owner.named_children():
                if name in TABLES and rows not in seen and isinstance(rows, nn.Embedding):
                    seen.add(rows)
                    offset = int(getattr(rows, "offset", 0))
                    padding = rows.padding_idx
                    first = offset if padding is None else padding + 1
                    learned = "Sinusoidal" not in type(rows).__name__
                    if learned and rows.num_embeddings - offset == number:
                        yield PositionTable(part, owner, rows, offset, first)
