"""Silent tokens: which ids never vote and are never stones, and how attention learns of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from jat_graph.config import JatConfig
from jat_graph.hf.modules import model_parts

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# What models hand on to their attention, as they do with every argument that they do not know.
ARGUMENT = "jat_silent"
# Tokens of a tokenizer that stand for no word.
ROLES = ("cls", "sep", "bos", "eos", "pad")


def with_silent_tokens(
    config: Any, tokenizer: PreTrainedTokenizerBase | Sequence[int] | None
) -> Any:
    """Return the settings with the silent tokens that are given, if they have none of their own.

    Those of a tokenizer are for stones; pairs vote as they always did.
    """
    if tokenizer is None or not isinstance(config, JatConfig) or config.silent_tokens:
        return config
    if isinstance(tokenizer, Sequence):
        return replace(config, silent_tokens=tuple(tokenizer))
    if config.graph != "stones":
        return config
    found = {getattr(tokenizer, f"{role}_token_id") for role in ROLES}
    return replace(config, silent_tokens=tuple(sorted(found - {None})))


def telling_hooks(
    base: PreTrainedModel, modules: Iterable[nn.Module], tokens: tuple[int, ...]
) -> list[tuple[nn.Module, Any]]:
    """Return what tells attention modules which tokens are silent: hooks of the parts around."""
    owners = {module: part for part in model_parts(base) for module in part.modules()}
    hooks: list[tuple[nn.Module, Any]] = []
    for part in {owners[module]: None for module in modules if tokens}:
        parameters = inspect.signature(type(part).forward).parameters
        if not any(entry.kind is entry.VAR_KEYWORD for entry in parameters.values()):
            raise ValueError(
                f"silent_tokens must be () for {type(part).__name__}, which hands no further "
                f"arguments on to its attention, got {tokens}"
            )
        place = list(parameters).index("input_ids") - 1 if "input_ids" in parameters else None
        hooks.append((part, partial(_tell, tokens, place)))
    return hooks


def _tell(
    tokens: tuple[int, ...],
    place: int | None,  # of the ids among the arguments
    part: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Add to the arguments of a part which of its tokens are silent; None for embeddings."""
    ids = None
    if place is not None:
        ids = args[place] if len(args) > place else kwargs.get("input_ids")
    return args, {**kwargs, ARGUMENT: None if ids is None else _silent(ids, tokens)}


def _silent(ids: Tensor, tokens: tuple[int, ...]) -> Tensor:  # [B, L]
    # Token by token, for a tensor of them would have to be sent to the device.
    return reduce(torch.logical_or, (ids == token for token in tokens)).flatten(0, -2)
