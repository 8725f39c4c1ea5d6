"""The largest score of every key, of which Eq. 8 takes the mean away."""

from __future__ import annotations

import torch
from torch import Tensor

from jat_graph.kernels.choice import implementation


def query_peaks(query: Tensor, key: Tensor, seen: Tensor | None) -> Tensor:
    """Return the largest product of each key with a query, streamed.

    No L×L tensor is stored, and no gradient flows through the result.

    Args:
        query: Queries ``[B, H, N, D]``.
        key: Keys ``[B, H, L, D]``, of the same dtype, float32 or float64.
        seen: Which queries count, ``[B|1, H|1, N]`` bool; None if all do. Where none is seen, the
            result is finite and means nothing.

    Returns:
        Maxima over the seen queries, ``[B, H, L]``.

    Reference:
        Eq. 8 of the JAT paper.
    """
    if seen is not None:
        # A seen query once more changes no maximum, and the loop needs no mask.
        first = seen.byte().argmax(-1)[..., None, None].expand(*query.shape[:2], 1, query.size(3))
        query = torch.where(seen.unsqueeze(-1), query, query.gather(2, first))
    peak: Tensor = _query_peaks(query.detach(), key.detach())
    return peak


@torch.library.custom_op("jat_graph::query_peaks", mutates_args=())
def _query_peaks(query: Tensor, key: Tensor) -> Tensor:
    """Stream; an opaque operator, so that torch.compile does not trace the loops."""
    flat = (tensor.flatten(0, 1).contiguous() for tensor in (query, key))
    peak: Tensor = implementation(query.device).peaks(*flat)
    return peak.view(key.shape[:3])


@_query_peaks.register_fake
def _(query: Tensor, key: Tensor) -> Tensor:
    return key.new_empty(key.shape[:3])
