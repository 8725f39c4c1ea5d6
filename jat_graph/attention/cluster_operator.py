"""Attention by clusters as one operator of torch, over batches, padding, documents and heads.

``torch.compile`` and ``torch.export`` see nothing of what is inside: any length is the same graph.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from jat_graph.adjacency.clusters import number_of_clusters
from jat_graph.attention.cluster_parts import Kept
from jat_graph.attention.clusters import ClusterHeads, DenseHeads, Parts
from jat_graph.graph_config import ClusterRule
from jat_graph.kernels.threads import run_tasks

# Numbers that heads may take up together while they read: 64 MiB in float32.
ROOM = 2**24


Outputs: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor]


class Piece(NamedTuple):
    """Some heads of one sequence of a batch."""

    batch: int
    tokens: Tensor | slice
    heads: slice
    number: int  # of the piece


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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # [B, H, L, Dv], and three times [B, H, L]
    """Return outputs, the shift and the sum of each token's weights, and what tokens joined."""
    rule = ClusterRule(clusters, keys, block, refine, dense_below, propagate)
    pieces = _pieces(query, documents, rule, alone=seed is not None)

    def read(piece: Piece) -> list[Tensor]:
        parts = [_cut(x, query, piece) for x in (query, key, value)]
        reader = _reader(parts, rule, scale)
        output, *sums = reader.read(_kept(dropout_p, seed, query, piece))
        return [output, *sums, reader.joined] if isinstance(reader, ClusterHeads) else [output]

    outputs = _outputs(query, value)
    if documents is not None:
        outputs[0].zero_()  # what padding reads
    for piece, found in zip(pieces, run_tasks(read, pieces), strict=True):
        for total, part in zip(outputs, found, strict=False):
            _put(total, part, piece)
    return outputs


@torch.library.custom_op("jat_graph::read_clusters_backward", mutates_args=())
def _read_clusters_backward(
    grad: Tensor,  # [B, H, L, Dv]
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    shift: Tensor,
    weight: Tensor,
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
    rule = ClusterRule(clusters, keys, block, refine, dense_below, propagate)
    pieces = _pieces(query, documents, rule, alone=seed is not None)

    def differentiate(piece: Piece) -> tuple[Tensor, Tensor, Tensor]:
        batch, tokens, heads, _ = piece
        parts = [_cut(x, query, piece) for x in (query, key, value)]
        own, *sums = (x[batch, heads][:, tokens] for x in (joined, shift, weight))
        reader = _reader(parts, rule, scale, own.long())
        grads = _cut(grad, query, piece), _cut(output, query, piece)
        return reader.gradients(*grads, (sums[0], sums[1]), _kept(dropout_p, seed, query, piece))

    totals = [torch.zeros_like(x, dtype=shift.dtype) for x in (query, key, value)]
    for piece, gradients in zip(pieces, run_tasks(differentiate, pieces), strict=True):
        for total, found in zip(totals, gradients, strict=True):
            times = query.size(1) // total.size(1)
            if times == 1:
                _put(total, found, piece)
                continue
            for head, part in enumerate(found, piece.heads.start):  # which share their keys
                total[piece.batch, head // times][piece.tokens] += part
    by_query, by_key, by_value = (x.to(query.dtype) for x in totals)
    return by_query, by_key, by_value


@read_clusters.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *settings: Any) -> Outputs:
    return _outputs(query, value)


@_read_clusters_backward.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Parts:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:5])
    ctx.settings = inputs[5:]
    ctx.mark_non_differentiable(*output[1:])


def _differentiate(ctx: Any, grad: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    with torch.autocast(grad.device.type, enabled=False):
        found = _read_clusters_backward(grad, *ctx.saved_tensors, *ctx.settings)
    return (*found, *[None] * 10)


read_clusters.register_autograd(_differentiate, setup_context=_keep)


def _outputs(query: Tensor, value: Tensor) -> Outputs:
    """Return room for outputs; the heads of a token stand together, as SDPA has them."""
    batch, heads, length, _ = query.shape
    output = value.new_empty(batch, length, heads, value.size(-1)).transpose(1, 2)
    dtype = torch.promote_types(query.dtype, torch.float32)
    shift, weight = (query.new_zeros(batch, heads, length, dtype=dtype) for _ in range(2))
    return output, shift, weight, query.new_zeros(batch, heads, length, dtype=torch.int32)


def _kept(dropout_p: float, seed: Tensor | None, query: Tensor, piece: Piece) -> Kept:
    if seed is None:
        return None
    generator = torch.Generator(query.device).manual_seed(int(seed) + piece.number)
    return 1 - dropout_p, generator


def _pieces(
    query: Tensor, documents: Tensor | None, rule: ClusterRule, *, alone: bool
) -> list[Piece]:
    """Return the sequences of a batch, each document one, in groups of heads that fit in memory.

    Heads with dropout stand alone, so that backward draws the same on other numbers of threads.
    """
    (batch, heads, length, _), pieces = query.shape, list[Piece]()
    threads = torch.get_num_threads() if query.device.type == "cpu" else 1
    for item in range(batch):
        own = None if documents is None else documents[item]
        names = [] if own is None else torch.unique(own[own >= 0]).tolist()
        indices: list[Any] = [torch.nonzero(own == n).squeeze(-1) for n in names]
        # A sequence without padding is cut, and not copied.
        if own is None or (len(indices) == 1 and len(indices[0]) == length):
            indices = [slice(None)]
        for tokens in indices:
            number = length if isinstance(tokens, slice) else len(tokens)
            wide = number_of_clusters(number, rule.clusters) + 3 * rule.block + rule.keys
            room = min(ROOM // (number * wide), heads) // threads
            step = 1 if alone else max(1, room)
            for first in range(0, heads, step):
                some = slice(first, min(first + step, heads))
                pieces.append(Piece(item, tokens, some, len(pieces)))
    return pieces


def _cut(x: Tensor, query: Tensor, piece: Piece) -> Tensor:  # [heads, n, D]
    """Return some tokens of some heads, each with its keys, in the precision of sums."""
    part, heads = x[piece.batch], piece.heads
    times = query.size(1) // x.size(1)
    if times == 1:
        part = part[heads]
    else:
        index = torch.arange(heads.start, heads.stop, device=x.device) // times
        part = part.index_select(0, index)
    tokens = piece.tokens
    part = part[:, tokens] if isinstance(tokens, slice) else part.index_select(1, tokens)
    return part.to(torch.promote_types(x.dtype, torch.float32)).contiguous()


def _put(total: Tensor, part: Tensor, piece: Piece) -> None:
    total[piece.batch, piece.heads][:, piece.tokens] = part.to(total.dtype)


def _reader(
    parts: list[Tensor], rule: ClusterRule, scale: float, joined: Tensor | None = None
) -> ClusterHeads | DenseHeads:
    query, key, value = parts
    assert rule.dense_below is not None
    if query.size(1) < rule.dense_below:
        return DenseHeads(query, key, value, scale)
    return ClusterHeads(query, key, value, rule, scale, joined)
