"""Filter heads: values are read by a polynomial of the attention probabilities P."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from jat_graph.filter_config import FilterConfig

# Takes values to what one reading makes of them, P x; it never forms P.
Read = Callable[[Tensor], Tensor]


def filter_heads(
    read: Read,
    value: Tensor,  # [B, H, L, Dv]
    config: FilterConfig,
    theta: Tensor | None,  # of "gfsa": w₀, w₁ − 1 and w_K, [3, H]
) -> Tensor:  # [B, H, L, Dv]
    """Return what filter heads read: those of small models and of attached ones.

    Sums are in float32 at least. With dropout each reading drops probabilities of its own, as
    MAGNA's released code does; GFSA's drops them once for both.
    """
    if config.rule == "ppr":
        return _ppr(read, value, config)
    assert theta is not None
    return _gfsa(read, value, config.order, theta)


def _ppr(read: Read, value: Tensor, config: FilterConfig) -> Tensor:
    assert config.restart is not None
    state, start = value, _wide(value)
    for _ in range(config.order):
        near = _wide(read(state))
        state = ((1 - config.restart) * near + config.restart * start).to(value.dtype)
    return state


def _gfsa(read: Read, value: Tensor, order: int, theta: Tensor) -> Tensor:
    first = read(value)
    start, once, twice = _wide(value), _wide(first), _wide(read(first))
    itself, more, high = theta.to(start.dtype)[:, :, None, None]
    far = once + (order - 1) * (twice - once)
    result: Tensor = once + more * once + itself * start + high * far
    return result.to(first.dtype)


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
