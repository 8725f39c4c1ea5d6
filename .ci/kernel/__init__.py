"""Attention along trees of keys: each token reads the best keys exactly, all others by means.

Made of jat_graph by its .ci/kernel/build.py. On CUDA kernels of Triton read; elsewhere the formula.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .attend import read_first
from .defaults import MEASURED, ON_CUDA
from .operator import read_tree

__all__ = ["clustered", "clustered_attention"]


def clustered_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    padding: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    **settings: Any,
) -> Tensor:
    """Return attention along a tree of keys, [B, H, L, Dv].

    Args:
        query: Queries [B, H, L, D].
        key: Keys [B, Hkv, L, D], each head for as many neighbouring heads of queries.
        value: Values [B, Hkv, L, Dv].
        padding: Which tokens are none, bool [B, L].
        is_causal: A token reads what comes before it, and itself.
        scale: Factor of the scores; 1/√D by default.
        dropout_p: Dropout of the attention probabilities.
        settings: keys, groups, size, segment, window, dense_below, rest, margin.
    """
    rule = MEASURED[is_causal]
    if query.is_cuda:
        rule = rule._replace(dense_below=ON_CUDA[is_causal])
    rule = rule._replace(**settings)
    rule = rule._replace(dense_below=max(0, rule.dense_below - (not is_causal)))
    scale = query.size(-1) ** -0.5 if scale is None else scale
    if query.size(2) <= rule.first:
        return _dense(query, key, value, padding, is_causal, scale, dropout_p)
    seed = torch.randint(2**62, ()) if dropout_p > 0 else None
    documents = None if padding is None else -padding.int()
    given = documents, None, seed, scale, dropout_p, [float(x) for x in rule]
    first = None
    if query.is_cuda and padding is None:
        first = read_first(query, key, value, rule, scale, dropout_p)
    query = query if first is None else query[:, :, first.size(2) :]
    output = read_tree(query, key, value, *given)[0]
    return output if first is None else torch.cat([first, output], dim=2)


def clustered(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend as transformers' models ask: prompts along trees, tokens after them by SDPA."""
    for name in ("sliding_window", "softcap", "position_bias"):
        if kwargs.get(name) is not None:
            raise ValueError(f"{type(module).__name__} passes {name}, which trees do not take")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    scale = query.size(-1) ** -0.5 if scaling is None else scaling
    padding = None if attention_mask is None else attention_mask == 0
    if padding is not None and padding.dim() != 2:
        raise ValueError(f"attention_mask must be [B, L], got {tuple(padding.shape)}")
    if query.size(2) == key.size(2):
        options = {"padding": padding, "is_causal": causal, "scale": scale, "dropout_p": dropout}
        output = clustered_attention(query, key, value, **options)
    else:
        output = _dense(query, key, value, padding, causal, scale, dropout)
    return output.transpose(1, 2).contiguous(), None


def _dense(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, causal: bool,
    scale: float, dropout_p: float,
) -> Tensor:  # fmt: skip
    number, length = query.size(2), key.size(2)
    mask = None
    if padding is not None:
        mask = ~padding[:, None, None]
    if causal and (padding is not None or number != length):
        order = torch.ones(number, length, dtype=torch.bool, device=query.device)
        order = order.tril(length - number)
        mask = order if mask is None else mask & order
        mask = mask | torch.eye(length, dtype=torch.bool, device=query.device)[-number:]
    return F.scaled_dot_product_attention(
        query, key, value, mask, dropout_p, causal and mask is None, scale=scale, enable_gqa=True
    )
