"""Checks of heads as tensors, and of the numbers that come with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from jat_graph.core.compiling import in_transform
from jat_graph.core.numbers import check_inside, check_number


def check_heads(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, H, L, D]
    value: Tensor | None = None,  # [B, H, L, Dv], or None
    grouped: bool = False,  # whether keys and values may have fewer heads, Hkv
) -> None:
    """Refuse queries, keys and values whose shapes or dtypes do not fit, before any work."""
    check_layout("query", query)
    check_layout("key", key)
    batch, heads, length, width = query.shape
    number = key.size(1) if grouped else heads
    if heads % number:
        raise ValueError(f"query must have a multiple of {number} heads like key, got {heads}")
    if key.shape != (batch, number, length, width):
        wanted = [batch, number, length, width]
        raise ValueError(f"key must be {wanted} like query, got {list(key.shape)}")
    if value is not None:
        check_layout("value", value)
        if value.shape[:3] != key.shape[:3]:
            sizes = ", ".join(str(size) for size in key.shape[:3])
            raise ValueError(f"value must be [{sizes}, Dv], got {list(value.shape)}")
    if torch.is_autocast_enabled(query.device.type):
        return  # which makes one dtype of all
    for name, tensor in (("key", key), ("value", value)):
        if tensor is not None and tensor.dtype != query.dtype:
            raise ValueError(f"{name} must be {query.dtype} like query, got {tensor.dtype}")


def default_scale(head_dim: int) -> float:
    """Return 1/√D to the bit as SDPA takes it; ``D ** -0.5`` is another number for D = 8, say."""
    return 1.0 / math.sqrt(head_dim)


def check_scale(scale: float | None, head_dim: int) -> float:
    """Return the factor of the scores; None means 1/√D."""
    if scale is None:
        return default_scale(head_dim)
    return check_inside("scale", scale, -math.inf, math.inf)


def check_dropout(dropout_p: float) -> None:
    """Refuse a probability of dropout outside [0, 1]."""
    if check_number("dropout_p", dropout_p, least=0.0) > 1:
        raise ValueError(f"dropout_p must be at most 1, got {dropout_p}")


def check_layout(name: str, tensor: object) -> None:
    """Refuse what is no tensor ``[B, H, L, D]`` of floats, or has an empty axis."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.dim() != 4:
        raise ValueError(f"{name} must be [B, H, L, D], got {list(tensor.shape)}")
    if 0 in tensor.shape:
        raise ValueError(f"{name} must have no empty axis, got {list(tensor.shape)}")
    check_values(name, tensor)


def check_values(name: str, tensor: Tensor) -> None:
    """Refuse what nothing can be computed with, or whose values nobody may look at."""
    if not is_wide(tensor):
        raise ValueError(f"{name} must be floating point of 16 bits or more, got {tensor.dtype}")
    if (why := hidden(tensor)) is not None:
        raise ValueError(f"{name} must have values that can be read, got a tensor {why}")


def is_wide(tensor: Tensor) -> bool:
    """Tell whether a tensor holds numbers that torch computes with, and no codes for them."""
    return tensor.is_floating_point() and tensor.element_size() > 1


def hidden(tensor: Tensor) -> str | None:
    """Say why the values of a tensor cannot be looked at; None where they can, or need not."""
    if torch.compiler.is_compiling():
        return None
    if tensor.is_meta:
        return "on the device meta"
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return "in torch.jit.trace, which keeps the choices for one input: use torch.export"
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return "in torch.func.vmap: make its axis the batch, or a part of it"
        tensor = functorch.get_unwrapped(tensor)
    return None


def recomputed(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a function whose results backward computes again; torch.func must keep them."""
    run = checkpoint if not in_transform() else lambda function, *args, **_: function(*args)
    return run(function, *args, use_reentrant=False, **options)


def clean_padding(
    valid: Tensor | None,  # Tokens that are not padding, [B|1, H|1, L], or None
    **tensors: Tensor,  # [B, H, L, D] by name
) -> tuple[Tensor, ...]:
    """Return the tensors with padding set to 0, whatever it held; valid tokens must be finite."""
    # The check waits for the device, and is left out under `torch.compile`.
    if valid is not None:
        padding = ~valid.unsqueeze(-1)
        # A clone keeps the layout, without which SDPA may round in another way.
        tensors = {name: t.clone().masked_fill_(padding, 0.0) for name, t in tensors.items()}
    if not torch.compiler.is_compiling():
        for name, tensor in tensors.items():
            # One sum says it of all, in one pass; where it overflows, each is looked at.
            if bool(tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32)).isfinite()):
                continue
            finite = tensor.isfinite().all(-1)
            if not bool(finite.all()):
                batch, head, token = (~finite).nonzero()[0].tolist()
                got = f"NaN or Inf in sequence {batch}, head {head}, token {token}"
                raise ValueError(f"{name} must be finite in valid tokens, got {got}")
    return tuple(tensors.values())


def read_global(mask: object, query: Tensor) -> Tensor | None:  # of queries [B, H, L, D]
    """Return which tokens are global, bool ``[B, L]``, as a mask says it: bool, or 0 and 1."""
    if mask is None:
        return None
    shape = query.size(0), query.size(2)
    wanted = f"global_attention_mask must be bool or 0/1 {list(shape)}"
    if not isinstance(mask, Tensor) or mask.is_floating_point() or mask.shape != shape:
        got = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
        raise ValueError(f"{wanted}, got {got}")
    # No branch may depend on values while torch compiles.
    if not torch.compiler.is_compiling() and not torch.equal(mask, mask.bool().to(mask.dtype)):
        raise ValueError(f"{wanted}, got other numbers")
    return mask.to(query.device).bool()


def check_index(name: str, index: Tensor) -> Tensor:
    """Return rows of two ends of edges, which may be any integers."""
    whole = not index.is_floating_point() and index.dtype != torch.bool
    if not whole or index.dim() != 2 or len(index) != 2:
        raise ValueError(f"{name} must be integers [2, E], got {index.dtype} {[*index.shape]}")
    return index.long()


def flat_weights(name: str, weight: Tensor | None, count: int) -> Tensor | None:
    """Return weights as ``[E]``, which may come as a column ``[E, 1]``, like an ``edge_attr``."""
    if weight is None:
        return None
    known = isinstance(weight, Tensor)
    cure = ""
    if not known or weight.shape not in ((count,), (count, 1)):
        got = str([*weight.shape]) if known else type(weight).__name__
        if known and weight.dim() == 2 and len(weight) == count:
            cure = f"; a layer takes {weight.size(1)} columns if it is made with edge_dim"
        raise ValueError(f"{name} must be [{count}] or [{count}, 1], got {got}{cure}")
    return weight.reshape(count)


def add_rows(total: Tensor, index: Tensor, rows: Tensor) -> None:
    """Add rows to those of an index, some to the same one, with equal sums in every run."""
    if total.is_cuda:  # whose ``index_add_`` is atomic
        total.index_put_((index,), rows, accumulate=True)
    else:
        total.index_add_(0, index, rows)
