"""Attention of tokens to a few keys each, which lists name; it adds to what they have read."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from jat_graph.kernels.compiling import ANY_ORDER, Array, choose, loop

PIECE = 2**22  # numbers of keys that are gathered at a time


def read_listed(
    query: Tensor,  # of T tokens, scaled, [H, T, D]
    key: Tensor,  # [H, n, D]
    value: Tensor,  # with a column of ones last, [H, n, Dv + 1]
    index: Tensor,  # -1 for none, [H, T, keys]
    mask: Tensor | None,  # of dropout, [H, T, keys]
    total: Tensor,  # what the tokens have read, [H, T, Dv + 1]
    shift: Tensor,  # relative to e to this, [H, T]
) -> None:
    """Add what tokens read of the listed keys to totals, and change their shifts."""
    read = choose(query.device, read_torch, read_numba, read_torch)
    read(query, key, value, index, mask, total, shift)


def differentiate_listed(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    index: Tensor,
    mask: Tensor | None,
    shift: Tensor,  # in the end, [H, T]
    grad: Tensor,  # of outputs with a column of -delta last, [H, T, Dv + 1]
    by_key: Tensor,  # [H, n, D]
    by_value: Tensor,  # [H, n, Dv + 1]
) -> tuple[Tensor, Tensor]:  # [H, T, D], [H, T]
    """Add the gradients of keys and values; return those of queries, and the sums over scores."""
    run = choose(query.device, differentiate_torch, differentiate_numba, differentiate_torch)
    return run(query, key, value, index, mask, shift, grad, by_key, by_value)


# --- torch ---------------------------------------------------------------------------------------


def read_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    index: Tensor,
    mask: Tensor | None,
    total: Tensor,
    shift: Tensor,
) -> None:
    """Add what tokens read, some tokens of a head at a time."""
    for head, part in _parts(index, key.size(-1) + value.size(-1)):
        own = index[head, part]
        scores = (key[head, own] @ query[head, part].unsqueeze(-1)).squeeze(-1)
        scores = scores.masked_fill(own < 0, -torch.inf)
        largest = torch.cat([scores, shift[head, part].unsqueeze(-1)], dim=-1).amax(-1)
        weights = (scores - largest.unsqueeze(-1)).exp()
        listed = value[head, own]
        read = (_masked(weights, mask, head, part).unsqueeze(1) @ listed).squeeze(1)
        read[:, -1] = weights.sum(-1)
        total[head, part] *= (shift[head, part] - largest).exp().unsqueeze(-1)
        total[head, part] += read
        shift[head, part] = largest


def differentiate_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    index: Tensor,
    mask: Tensor | None,
    shift: Tensor,
    grad: Tensor,
    by_key: Tensor,
    by_value: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients, some tokens of a head at a time."""
    by_query, sums = torch.empty_like(query), torch.empty_like(shift)
    for head, part in _parts(index, key.size(-1) + value.size(-1)):
        own, q, g = index[head, part], query[head, part], grad[head, part]
        near = key[head, own]
        scores = (near @ q.unsqueeze(-1)).squeeze(-1).masked_fill(own < 0, -torch.inf)
        weights = (scores - shift[head, part].unsqueeze(-1)).exp()
        by_weight = (value[head, own][..., :-1] @ g[:, :-1].unsqueeze(-1)).squeeze(-1)
        by_score = weights * (_masked(by_weight, mask, head, part) + g[:, -1:])
        by_query[head, part] = (by_score.unsqueeze(1) @ near).squeeze(1)
        sums[head, part] = by_score.sum(-1)
        flat = own.clamp(min=0).flatten()
        by_key[head].index_add_(0, flat, (by_score.unsqueeze(-1) * q.unsqueeze(1)).flatten(0, 1))
        dropped = _masked(weights, mask, head, part).unsqueeze(-1)
        by_value[head].index_add_(0, flat, (dropped * g.unsqueeze(1)).flatten(0, 1))
    return by_query, sums


def _parts(index: Tensor, width: int) -> list[tuple[int, slice]]:
    """Return some tokens of a head at a time."""
    heads, number, keys = index.shape
    size = max(1, PIECE // max(1, keys * width))
    return [(h, slice(s, s + size)) for h in range(heads) for s in range(0, number, size)]


def _masked(weights: Tensor, mask: Tensor | None, head: int, part: slice) -> Tensor:
    return weights if mask is None else weights * mask[head, part]


# --- numba: neighbouring tokens have nearly the same lists; keys stay in the cache ---------------


def read_numba(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    index: Tensor,
    mask: Tensor | None,
    total: Tensor,
    shift: Tensor,
) -> None:
    """Add what tokens read, token by token."""
    dropped = query.new_empty(0, 0, 0) if mask is None else mask
    _read(*(x.numpy() for x in (query, key, value, index, dropped, total, shift)))


def differentiate_numba(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    index: Tensor,
    mask: Tensor | None,
    shift: Tensor,
    grad: Tensor,
    by_key: Tensor,
    by_value: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients, token by token."""
    by_query, sums = torch.zeros_like(query), torch.zeros_like(shift)
    dropped = query.new_empty(0, 0, 0) if mask is None else mask
    arrays = (query, key, value, index, dropped, shift, grad, by_query, by_key, by_value, sums)
    _differentiate(*(x.numpy() for x in arrays))
    return by_query, sums


@loop(**ANY_ORDER)
def _read(
    query: Array, key: Array, value: Array, index: Array, mask: Array, total: Array, shift: Array
) -> None:
    heads, number, keys = index.shape
    scores, width = np.empty(keys, query.dtype), value.shape[-1]
    for head in range(heads):
        for token in range(number):
            q, own, read = query[head, token], index[head, token], total[head, token]
            largest = shift[head, token]
            for place in range(keys):
                if own[place] >= 0:
                    scores[place] = _product(q, key[head, own[place]])
                    largest = max(largest, scores[place])
            factor = np.exp(shift[head, token] - largest)
            for column in range(width):
                read[column] *= factor
            for place in range(keys):
                if own[place] >= 0:
                    weight = np.exp(scores[place] - largest)
                    read[width - 1] += weight
                    if mask.size:
                        weight *= mask[head, token, place]
                    listed = value[head, own[place]]
                    for column in range(width - 1):
                        read[column] += weight * listed[column]
            shift[head, token] = largest


@loop(**ANY_ORDER)
def _differentiate(
    query: Array,
    key: Array,
    value: Array,
    index: Array,
    mask: Array,
    shift: Array,
    grad: Array,
    by_query: Array,
    by_key: Array,
    by_value: Array,
    sums: Array,
) -> None:
    heads, number, keys = index.shape
    size, width = query.shape[-1], value.shape[-1] - 1
    for head in range(heads):
        for token in range(number):
            q, g, own = query[head, token], grad[head, token], index[head, token]
            back = by_query[head, token]
            for place in range(keys):
                if own[place] < 0:
                    continue
                k, v = key[head, own[place]], value[head, own[place]]
                weight = np.exp(_product(q, k) - shift[head, token])
                share = _product(g[:width], v[:width])
                kept = weight
                if mask.size:
                    share *= mask[head, token, place]
                    kept *= mask[head, token, place]
                by_score = weight * (share + g[width])
                sums[head, token] += by_score
                to_key, to_value = by_key[head, own[place]], by_value[head, own[place]]
                for column in range(size):
                    back[column] += by_score * k[column]
                    to_key[column] += by_score * q[column]
                for column in range(width):
                    to_value[column] += kept * g[column]


@loop(**ANY_ORDER)
def _product(x: Array, y: Array) -> float:
    total: float = x[0] * y[0]
    for column in range(1, len(x)):
        total += x[column] * y[column]
    return total
