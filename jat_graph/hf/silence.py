"""Silent tokens: which ids never vote and are never stones, and how attention learns of them."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from jat_graph.config import JatConfig
from jat_graph.hf.modules import layers_around, model_parts

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
    if tokenizer is None or not isinstance(config, JatConfig) or config.excluded_token_ids:
        return config
    if isinstance(tokenizer, Sequence):
        return replace(config, excluded_token_ids=tuple(tokenizer))
    if config.graph.kind != "stones":
        return config
    found = {getattr(tokenizer, f"{role}_token_id") for role in ROLES}
    return replace(config, excluded_token_ids=tuple(sorted(found - {None})))


def telling_hooks(
    base: PreTrainedModel, modules: Iterable[nn.Module], tokens: tuple[int, ...]
) -> list[tuple[nn.Module, Any]]:
    """Return what tells attention modules which tokens are silent: hooks of the parts around."""
    owners = {module: part for part in model_parts(base) for module in part.modules()}
    told: dict[PreTrainedModel, list[nn.Module]] = {}
    for module in modules if tokens else ():
        told.setdefault(owners[module], []).append(module)
    hooks: list[tuple[nn.Module, Any]] = []
    for part, own in told.items():
        parameters = inspect.signature(type(part).forward).parameters
        if not any(entry.kind is entry.VAR_KEYWORD for entry in parameters.values()):
            raise ValueError(
                f"excluded_token_ids must be () for {type(part).__name__}, which hands no further "
                f"arguments on to its attention, got {tokens}"
            )
        place = list(parameters).index("input_ids") - 1 if "input_ids" in parameters else None
        hooks.append((part, partial(_tell, tokens, place)))
        if place is not None:
            hooks += _listening_hooks(part, own, tokens)
    return hooks


class _Overheard(threading.local):
    """What the embedding last saw in each thread, and how many layers have yet to be told."""

    silent: Tensor | None = None  # [B, L]
    layers: int = 0


_overheard = _Overheard()


def _listening_hooks(
    part: PreTrainedModel, modules: list[nn.Module], tokens: tuple[int, ...]
) -> list[tuple[nn.Module, Any]]:
    """Return what tells modules of a part whose ``forward`` is called without the part's hooks.

    Libraries on top of transformers do so (sentence-transformers). Layers are told outside of
    gradient checkpointing, which then keeps what they were told.
    """
    layers = layers_around(part, modules)
    rounds = part.config.num_hidden_layers if hasattr(part.config, "num_hidden_groups") else 1
    listener = partial(_overhear, tokens, len(layers) * rounds)
    return [(part.get_input_embeddings(), listener), *((layer, _hand_on) for layer in layers)]


def _overhear(
    tokens: tuple[int, ...], layers: int, module: nn.Module, args: Any, kwargs: dict[str, Any]
) -> None:
    _overheard.silent, _overheard.layers = _silent(args[0], tokens), layers


def _hand_on(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Add to the arguments of a layer which tokens are silent, if nobody else has told it."""
    silent = _overheard.silent
    if ARGUMENT in kwargs or silent is None:
        _overheard.silent = None
        return None
    _overheard.layers -= 1
    if _overheard.layers == 0:  # the next forward may be one of embeddings
        _overheard.silent = None
    return args, {**kwargs, ARGUMENT: silent}


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
