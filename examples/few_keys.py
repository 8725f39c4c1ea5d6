"""Encoders that read a few keys: the methods of ``where_to_look`` in the place of attention.

``register("few:vertical lines:0.25")`` makes that name one for ``attn_implementation``. A token
then reads a quarter of the text's keys, half of them around it and half where the method says.
Texts of a batch are read one by one without their padding, by dense formulas: nothing is faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from examples.where_to_look import FIRST, METHODS, Heads

PREFIX = "few:"


def register(name: str) -> None:
    """Make ``few:METHOD:SHARE`` a way to compute attention."""
    method, share = parse(name)

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **more: Any
    ) -> tuple[Tensor, None]:
        if getattr(module, "is_causal", False):
            raise ValueError(f"{name} is for encoders, got {type(module).__name__}, a decoder's")
        output = torch.zeros_like(value)
        for item, parts in enumerate(zip(query, key, value, strict=True)):
            valid = slice(None) if mask is None else mask[item, 0].any(0)
            query, key, value = (x[:, valid].float() for x in parts)
            own = Heads(query, key, value, more["scaling"])
            output[item][:, valid] = read(own, method, share).to(output.dtype)
        return output.transpose(1, 2), None

    AttentionInterface.register(name, attend)
    AttentionMaskInterface.register(name, sdpa_mask)


def parse(name: str) -> tuple[str, float]:
    """Return the method and the share of a name."""
    prefix, _, given = name.rpartition(":")
    method = prefix.removeprefix(PREFIX)
    try:
        share = float(given)
    except ValueError:
        share = 0.0
    if method not in METHODS or not name.startswith(PREFIX) or not 0 < share < 1:
        wanted = f"few:METHOD:SHARE, a share below 1 and a method of {', '.join(METHODS)}"
        raise ValueError(f"attention must be {wanted}, got {name!r}")
    return method, share


def read(heads: Heads, method: str, share: float) -> Tensor:  # [H, L, D]
    """Return the outputs of heads that read a share of all keys, and eight at least."""
    length = heads.query.size(1)
    keys = max(round(share * length), 2 * FIRST)
    if keys >= length:
        return heads.attention @ heads.value
    return METHODS[method](heads, keys)[0] @ heads.value
