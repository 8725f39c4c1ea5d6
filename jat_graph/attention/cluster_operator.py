"""Attention by clusters as one operator of torch, over batches, padding, documents and heads.

``torch.compile`` and ``torch.export`` see nothing of what is inside: any length is the same graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from jat_graph.adjacency.clusters import number_of_clusters
from jat_graph.attention.cluster_parts import Dropout
from jat_graph.attention.clusters import ClusterHeads, DenseHeads, Pair, Parts
from jat_graph.graph_config import ClusterRule
from jat_graph.kernels.compiling import run_tasks

# Numbers that heads may take up together while they read: 64 MiB in float32.
ROOM = 2**24

# Best keys of clusters that there is room for, for each token: backward need not choose them again.
BEST = 2

Outputs: TypeAlias = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


class Piece(NamedTuple):
    """Some heads of one sequence of a batch, of its global tokens or of all others."""

    batch: int
    tokens: Tensor | slice  # whose queries read
    keys: Tensor | slice  # these tokens, and behind them those that they read exactly
    dense: bool  # whether they read all keys exactly
    heads: slice
    number: int  # of the piece


@torch.library.custom_op("jat_graph::read_clusters", mutates_args=())
def read_clusters(
    query: Tensor,  # [B, H, L, D]
    key: Tensor,  # [B, Hkv, L, D]
    value: Tensor,  # [B, Hkv, L, Dv]
    documents: Tensor | None,  # of each token, integers [B, L]; negative for padding
    global_tokens: Tensor | None,  # bool [B, L]
    seed: Tensor | None,  # of dropout, an integer
    scale: float,
    dropout_p: float,
    clusters: int | None,
    keys: int,
    block: int,
    dense_below: int,
    propagate: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # see _outputs
    """Return outputs, the shift and the sum of each token's weights, and what clusters chose."""
    rule = ClusterRule(clusters, keys, block, dense_below, propagate)
    pieces = _pieces(query, documents, global_tokens, rule)

    outputs = _outputs(query, value)
    if documents is not None:
        outputs[0].zero_()  # what padding reads

    def read(piece: Piece) -> None:
        reader = _reader((query, key, value), piece, rule, scale)
        output, *sums = reader.read(_kept(dropout_p, seed, query, piece))
        _put(outputs[0], output, piece)
        if not isinstance(reader, DenseHeads):
            for total, part in zip(outputs[1:4], [*sums, reader.joined], strict=True):
                _put(total, part, piece)
            for total, part in zip(outputs[4:], reader.highest, strict=True):
                _put_flat(total, part, piece)

    list(run_tasks(read, pieces))
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
    best: Tensor,
    largest: Tensor,
    documents: Tensor | None,
    global_tokens: Tensor | None,
    seed: Tensor | None,
    scale: float,
    dropout_p: float,
    clusters: int | None,
    keys: int,
    block: int,
    dense_below: int,
    propagate: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of queries, keys and values."""
    rule = ClusterRule(clusters, keys, block, dense_below, propagate)
    pieces = _pieces(query, documents, global_tokens, rule)

    times = query.size(1) // key.size(1)
    alone = times == 1 and global_tokens is None  # whether no key is in several pieces
    new = torch.empty_like if documents is None and alone else torch.zeros_like
    totals = [new(x, dtype=shift.dtype) for x in (query, key, value)]

    def differentiate(piece: Piece) -> list[Tensor]:
        place = piece.batch, piece.heads
        chosen = joined, best, largest, shift, weight
        own, keys, scores, *sums = (x[place][:, piece.tokens] for x in chosen)
        known = own.long(), _highest(keys, scores, rule)
        reader = _reader((query, key, value), piece, rule, scale, *known)
        come, read = (_cut(query, piece, x, piece.tokens) for x in (grad, output))
        kept = _kept(dropout_p, seed, query, piece)
        found = list(reader.gradients(come, read, (sums[0], sums[1]), kept))
        for total in totals if alone else totals[:1]:
            _put(total, found.pop(0), piece)
        return found

    for piece, found in zip(pieces, run_tasks(differentiate, pieces), strict=True):
        for total, gradient in zip(totals[1:], found, strict=False):
            for head, part in enumerate(gradient, piece.heads.start):  # which share their keys
                total[piece.batch, head // times][piece.keys] += part
    by_query, by_key, by_value = (x.to(query.dtype) for x in totals)
    return by_query, by_key, by_value


@read_clusters.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *settings: Any) -> Outputs:
    return _outputs(query, value)


@_read_clusters_backward.register_fake
def _(grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Parts:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:6])
    ctx.settings = inputs[6:]
    ctx.mark_non_differentiable(*output[1:])


def _differentiate(ctx: Any, grad: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    with torch.autocast(grad.device.type, enabled=False):
        found = _read_clusters_backward(grad, *ctx.saved_tensors, *ctx.settings)
    return (*found, *[None] * 10)


read_clusters.register_autograd(_differentiate, setup_context=_keep)


def _outputs(query: Tensor, value: Tensor) -> Outputs:
    """Return room for outputs, whose heads stand together, as SDPA has them, and for the rest.

    The shift and the sum of each token's weights and its cluster are ``[B, H, L]``; best keys of
    clusters and their highest other score stand in a row, where tokens have room for them.
    """
    batch, heads, length, _ = query.shape
    output = value.new_empty(batch, length, heads, value.size(-1)).transpose(1, 2)
    dtype = torch.promote_types(query.dtype, torch.float32)
    shift, weight, largest = (query.new_zeros(batch, heads, length, dtype=dtype) for _ in range(3))
    joined = query.new_zeros(batch, heads, length, dtype=torch.int32)
    best = query.new_zeros(batch, heads, length, BEST, dtype=torch.int32)
    return output, shift, weight, joined, best, largest


def _kept(dropout_p: float, seed: Tensor | None, query: Tensor, piece: Piece) -> Dropout:
    if seed is None:
        return None
    generator = torch.Generator(query.device).manual_seed(int(seed) + piece.number)
    return 1 - dropout_p, generator


def _pieces(
    query: Tensor, documents: Tensor | None, global_tokens: Tensor | None, rule: ClusterRule
) -> list[Piece]:
    """Return the sequences of a batch, each document one, in groups of heads that fit in memory.

    On a CPU they are heads, whose numbers the allocator keeps: fresh pages cost more than work.
    """
    (batch, heads, length, _), pieces = query.shape, list[Piece]()
    for item in range(batch):
        own = None if documents is None else documents[item]
        names = [] if own is None else torch.unique(own[own >= 0]).tolist()
        indices: list[Any] = [torch.nonzero(own == n).squeeze(-1) for n in names]
        # A sequence without padding is cut, and not copied.
        if own is None or (len(indices) == 1 and len(indices[0]) == length):
            indices = [slice(None)]
        everywhere = None if global_tokens is None else global_tokens[item]
        for tokens, keys, dense in _readers(indices, everywhere):
            number = length if isinstance(tokens, slice) else len(tokens)
            wide = number_of_clusters(number, rule.clusters) + 3 * rule.block + (rule.keys or 0)
            step = 1 if query.device.type == "cpu" else max(1, ROOM // (number * wide))
            for first in range(0, heads, step):
                some = slice(first, min(first + step, heads))
                pieces.append(Piece(item, tokens, keys, dense, some, len(pieces)))
    return pieces


def _readers(indices: list[Any], everywhere: Tensor | None) -> Iterator[tuple[Any, Any, bool]]:
    """Yield tokens of each document, their keys, and whether they read all of them exactly."""
    for tokens in indices:
        if everywhere is None or not bool(everywhere[tokens].any()):
            yield tokens, tokens, False
            continue
        every = torch.arange(len(everywhere), device=everywhere.device)[tokens]
        given, others = every[everywhere[tokens]], every[~everywhere[tokens]]
        yield given, torch.cat([given, others]), True
        if len(others):
            yield others, torch.cat([others, given]), False


def _cut(query: Tensor, piece: Piece, x: Tensor, tokens: Tensor | slice) -> Tensor:  # [heads, n, D]
    """Return some tokens of some heads, each with its keys, in the precision of sums."""
    part, heads = x[piece.batch], piece.heads
    times = query.size(1) // x.size(1)
    if times == 1:
        part = part[heads]
    else:
        index = torch.arange(heads.start, heads.stop, device=x.device) // times
        part = part.index_select(0, index)
    part = part[:, tokens] if isinstance(tokens, slice) else part.index_select(1, tokens)
    return part.to(torch.promote_types(x.dtype, torch.float32))


def _put(total: Tensor, part: Tensor, piece: Piece) -> None:
    total[piece.batch, piece.heads][:, piece.tokens] = part.to(total.dtype)


def _reader(
    features: Parts,
    piece: Piece,
    rule: ClusterRule,
    scale: float,
    joined: Tensor | None = None,
    highest: Pair | None = None,
) -> ClusterHeads | DenseHeads:
    places = piece.tokens, piece.keys, piece.keys
    query, key, value = map(partial(_cut, features[0], piece), features, places)
    assert rule.dense_below is not None
    if piece.dense or query.size(1) < rule.dense_below:
        return DenseHeads(query, key, value, scale)
    return ClusterHeads(query, key, value, rule, scale, joined, highest)


def _put_flat(total: Tensor, part: Tensor, piece: Piece) -> None:
    """Write what clusters have, [heads, m, …], in a row, if their tokens have room for it."""
    heads, own = part.size(0), total[piece.batch, piece.heads][:, piece.tokens]
    if (flat := part.flatten(1)).size(1) <= own[0].numel():
        row = own.new_zeros(heads, own[0].numel())
        row[:, : flat.size(1)] = flat
        _put(total, row.view(own.shape), piece)


def _highest(best: Tensor, largest: Tensor, rule: ClusterRule) -> Pair | None:
    """Return what clusters scored highest, unless their tokens had no room for it."""
    heads, length = largest.shape
    clusters, keys = number_of_clusters(length, rule.clusters), rule.keys or 0
    if clusters * keys > BEST * length:
        return None
    row = best.flatten(1)[:, : clusters * keys]
    return row.view(heads, clusters, keys).long(), largest[:, :clusters]
