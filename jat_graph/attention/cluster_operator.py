"""Attention by clusters as one operator of torch, over batches, padding, documents and heads.

``torch.compile`` and ``torch.export`` see nothing of what is inside: any length is the same graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from jat_graph.adjacency.clusters import number_of_clusters
from jat_graph.attention.cluster_parts import Back, Gradients, Kept
from jat_graph.attention.clusters import ClusterHeads, DenseHeads
from jat_graph.graph_config import ClusterRule

# Numbers that heads may take up together while they read: 64 MiB in float32.
ROOM = 2**24


@torch.library.custom_op("jat_graph::read_clusters", mutates_args=())
def read_clusters(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, Hkv, L, D]
    value: Tensor,  # [B, Hkv, L, Dv]
    documents: Tensor | None,  # of each token, integers [B, L]; negative for padding
    seed: Tensor | None,  # of dropout, an integer
    scale: float,
    dropout_p: float,
    clusters: int | None,
    keys: int,
    block: int,
    refine: int,
    dense_below: int,
    propagate: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # [B, H, L, Dv], [B, H, L], [B, H, L]
    """Return the heads' outputs, the log-sum-exp of their scores, and what their tokens joined."""
    output, lse, joined = _outputs(query, value)
    output.zero_()  # what padding reads
    rule = ClusterRule(clusters, keys, block, refine, dense_below, propagate)
    kept = _kept(dropout_p, seed, query)
    for batch, tokens, heads in _pieces(query, documents, rule):
        parts = [_cut(x, query, batch, tokens, heads) for x in (query, key, value)]
        reader = _reader(parts, rule, scale)
        read = reader.read(kept)
        _put(output, read.output, batch, tokens, heads)
        if isinstance(reader, ClusterHeads):
            _put(lse, read.lse, batch, tokens, heads)
            _put(joined, reader.joined, batch, tokens, heads)
    return output, lse, joined


@torch.library.custom_op("jat_graph::read_clusters_backward", mutates_args=())
def _read_clusters_backward(
    grad: Tensor,  # [B, H, L, Dv]
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    lse: Tensor,
    joined: Tensor,
    documents: Tensor | None,
    seed: Tensor | None,
    scale: float,
    dropout_p: float,
    clusters: int | None,
    keys: int,
    block: int,
    refine: int,
    dense_below: int,
    propagate: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    totals = [torch.zeros_like(x, dtype=lse.dtype) for x in (query, key, value)]
    rule = ClusterRule(clusters, keys, block, refine, dense_below, propagate)
    kept = _kept(dropout_p, seed, query)
    for batch, tokens, heads in _pieces(query, documents, rule):

        def cut(x: Tensor) -> Tensor:
            return _cut(x, query, batch, tokens, heads)  # noqa: B023

        mine = joined[batch, heads][:, tokens].long()
        reader = _reader([cut(x) for x in (query, key, value)], rule, scale, mine)
        own_grad = cut(grad)
        delta = (own_grad * cut(output)).sum(-1)
        back = Back(own_grad, delta, lse[batch, heads][:, tokens])
        for total, found in zip(totals, reader.gradients(back, kept), strict=True):
            times = query.size(1) // total.size(1)
            if times == 1:
                _put(total, found, batch, tokens, heads)
            else:
                index = torch.arange(heads.start, heads.stop, device=total.device) // times
                for head, part in zip(index.tolist(), found, strict=True):
                    total[batch, head][tokens] += part
    by_query, by_key, by_value = (x.to(query.dtype) for x in totals)
    return by_query, by_key, by_value


@read_clusters.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *settings: Any) -> tuple[Tensor, Tensor, Tensor]:
    return _outputs(query, value)


@_read_clusters_backward.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Gradients:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:5])
    ctx.settings = inputs[5:]
    ctx.mark_non_differentiable(*output[1:])


def _differentiate(ctx: Any, grad: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    with torch.autocast(grad.device.type, enabled=False):
        found = _read_clusters_backward(grad, *ctx.saved_tensors, *ctx.settings)
    return (*found, *[None] * 10)


read_clusters.register_autograd(_differentiate, setup_context=_keep)


def _outputs(query: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return room for outputs; the heads of a token stand together, as SDPA has them."""
    batch, heads, length, _ = query.shape
    output = value.new_empty(batch, length, heads, value.size(-1)).transpose(1, 2)
    dtype = torch.promote_types(query.dtype, torch.float32)
    lse = query.new_zeros(batch, heads, length, dtype=dtype)
    return output, lse, query.new_zeros(batch, heads, length, dtype=torch.int32)


def _kept(dropout_p: float, seed: Tensor | None, query: Tensor) -> Kept:
    if seed is None:
        return None
    return 1 - dropout_p, torch.Generator(query.device).manual_seed(int(seed))


def _pieces(
    query: Tensor, documents: Tensor | None, rule: ClusterRule
) -> Iterator[tuple[int, Tensor | slice, slice]]:
    """Yield the sequences of a batch, each document one, in groups of heads that fit in memory."""
    for batch in range(query.size(0)):
        own = None if documents is None else documents[batch]
        names = [] if own is None else torch.unique(own[own >= 0]).tolist()
        indices = [torch.nonzero(own == name).squeeze(-1) for name in names]
        # A sequence without padding is cut, and not copied.
        whole = own is None or (len(indices) == 1 and len(indices[0]) == len(own))
        for tokens in [slice(None)] if whole else indices:
            length = query.size(2) if isinstance(tokens, slice) else len(tokens)
            wide = number_of_clusters(length, rule.clusters) + 3 * rule.block + rule.keys
            step = max(1, ROOM // (length * wide))
            for first in range(0, query.size(1), step):
                yield batch, tokens, slice(first, min(first + step, query.size(1)))


def _cut(x: Tensor, query: Tensor, batch: int, tokens: Tensor | slice, heads: slice) -> Tensor:
    """Return some tokens of some heads, each with its keys, in the precision of sums."""
    part = x[batch, :, tokens] if isinstance(tokens, slice) else x[batch].index_select(1, tokens)
    times = query.size(1) // x.size(1)
    if times > 1:
        index = torch.arange(heads.start, heads.stop, device=x.device) // times
        part = part.index_select(0, index)
    else:
        part = part[heads]
    return part.to(torch.promote_types(x.dtype, torch.float32)).contiguous()


def _put(total: Tensor, part: Tensor, batch: int, tokens: Tensor | slice, heads: slice) -> None:
    total[batch, heads][:, tokens] = part.to(total.dtype)


def _reader(
    parts: list[Tensor], rule: ClusterRule, scale: float, joined: Tensor | None = None
) -> ClusterHeads | DenseHeads:
    query, key, value = parts
    assert rule.dense_below is not None
    if query.size(1) < rule.dense_below:
        return DenseHeads(query, key, value, scale)
    return ClusterHeads(query, key, value, rule, scale, joined)
