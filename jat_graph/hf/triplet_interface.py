"""The attention function of triplet heads, and what their modules remember."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from jat_graph.attention.triplets import triplet_heads
from jat_graph.hf.interface import jat_mask
from jat_graph.hf.mask_cache import resolve_once
from jat_graph.hf.notes import note, take_note
from jat_graph.hf.triplet_config import TripletConfig

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedConfig

TRIPLET_NAME = "triplet"
STATE_ATTRIBUTE = "_triplet_layer"


@dataclass
class TripletAttachment:
    """What all attention modules of a model with triplet heads share.

    Args:
        config: The settings.
        root_config: The model's configuration, which carries ``triplet``.
        implementations: Every configuration of the model and the attention it had before.
        num_modules: How many attention modules carry a :class:`TripletLayer`.
        hooks: Handles of the hooks on attention modules.
        enabled: False inside :func:`jat_graph.disabled`.
    """

    config: TripletConfig
    root_config: PreTrainedConfig
    implementations: list[tuple[PreTrainedConfig, str | None]]
    num_modules: int
    hooks: list[RemovableHandle] = field(default_factory=list)
    enabled: bool = True


@dataclass
class TripletLayer:
    """What one attention module carries.

    Args:
        attachment: What it shares with the others.
        index: Number of the layer; None if it stays on stock attention.
    """

    attachment: TripletAttachment
    index: int | None

    def note_hidden(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        """Note the hidden states at the module."""
        note(module, args[0] if args else kwargs.get("hidden_states"))


def find_triplets(model: nn.Module) -> TripletAttachment | None:
    """Return what the attention modules of a model with triplet heads share; None without."""
    layers = (getattr(module, STATE_ATTRIBUTE, None) for module in model.modules())
    return next((layer.attachment for layer in layers if layer is not None), None)


def register_triplets() -> None:
    """Register the attention function and, under the same name, a mask function."""
    AttentionInterface.register(TRIPLET_NAME, triplet_attention_forward)
    AttentionMaskInterface.register(TRIPLET_NAME, jat_mask)


def triplet_attention_forward(
    module: nn.Module,
    query: Tensor,  # Queries [B, H, L, D]
    key: Tensor,  # Keys [B, H, L, D]
    value: Tensor,  # Values [B, H, L, D]
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:  # [B, L, H, D]
    """Run one attention module: triplet attention in its last heads, SDPA in the others."""
    layer: TripletLayer | None = getattr(module, STATE_ATTRIBUTE, None)
    if layer is None:
        raise ValueError(
            f"{type(module).__name__} has no triplet heads, although its model was saved with "
            "them; load it with jat_graph.from_pretrained"
        )
    hidden, config = take_note(module), layer.attachment.config
    if layer.index is None or not layer.attachment.enabled:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, **kwargs
        )
        return output, None
    _check_sizes(module, query, key, value)
    stay = query.size(1) - config.heads
    read = triplet_heads(
        query[:, stay:],
        key[:, stay:],
        value[:, stay:],
        _second_keys(module, hidden, config),
        pairs=config.pairs,
        mask=_padding(module, attention_mask, query),
        seed=config.seed + layer.index,
        dropout_p=dropout,
    ).transpose(1, 2)  # [B, L, H, D]
    if stay == 0:
        return read.contiguous(), None
    query, key, value = (heads[:, :stay] for heads in (query, key, value))
    output, _ = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout, scaling, **kwargs
    )
    return torch.cat([output, read], dim=2), None


def _second_keys(module: nn.Module, hidden: Tensor | None, config: TripletConfig) -> Tensor | None:
    """Return what ``key2`` makes of the hidden states, ``[B, H, L, D]``; None without one."""
    if config.pairs != "partner":
        return None
    flat: Tensor = module.key2(hidden)  # type: ignore[operator]
    return flat.view(*flat.shape[:-1], config.heads, -1).transpose(1, 2)


def _check_sizes(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> None:
    if not query.shape == key.shape == value.shape:
        raise ValueError(
            f"{type(module).__name__} must have as many keys and values as queries for triplet "
            f"heads, got {list(key.shape)} and {list(value.shape)} for {list(query.shape)}"
        )


def _padding(module: nn.Module, attention_mask: Tensor | None, query: Tensor) -> Tensor | None:
    """Return the valid tokens, bool ``[B, L]``, or None if all are."""
    mask = resolve_once(attention_mask, False, query)
    if mask.causal or mask.pairs is not None or mask.bias is not None:
        raise ValueError(
            f"{type(module).__name__} must have a mask of padding only for triplet heads, got one "
            "of pairs"
        )
    if mask.valid is None:
        return None
    return mask.valid[:, 0].expand(query.size(0), -1)  # [B|1, 1, L] -> [B, L]
