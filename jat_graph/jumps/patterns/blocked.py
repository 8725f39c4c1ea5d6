"""Attention block by block: each block of queries reads just the keys that it needs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from jat_graph.core.compiling import in_transform
from jat_graph.core.tensors import add_rows, recomputed
from jat_graph.jumps.heads import wide_attention
from jat_graph.jumps.patterns.base import Pattern
from jat_graph.jumps.patterns.dense import PatternInputs, same_precision
from jat_graph.jumps.patterns.layout import BatchGroup, Piece, batch_groups

# Numbers of keys and values that are gathered at a time: 8 MiB, or 256 MiB on a GPU.
GATHERED, GATHERED_CUDA = 2**21, 2**26

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


# Layouts are Python: compiled code steps out here and goes on behind.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def run(inputs: PatternInputs) -> Tensor:  # [B, H, L, Dv]
    """Return attention under a pattern, storing nothing of size L×L."""
    return inputs.each_rule(_run_rule)


def _run_rule(inputs: PatternInputs, rule: Pattern, valid: Tensor | None) -> Tensor:
    batch, heads, length, _ = inputs.query.shape
    tensors = same_precision(inputs.query, inputs.key, inputs.value)
    query, key, value = (tensor.transpose(1, 2).flatten(0, 1) for tensor in tensors)
    groups = batch_groups(rule, valid, batch, length, query.device)
    output = attend_rows(query, key, value, groups, inputs.dropout_p, inputs.scale)
    return output.view(batch, length, heads, -1).transpose(1, 2)


def attend_rows(
    query: Tensor,  # [rows, H, F]
    key: Tensor,  # [rows, H, F]
    value: Tensor,  # [rows, H, Dv]
    groups: list[BatchGroup],
    dropout_p: float,
    scale: float,
) -> Tensor:  # [rows, H, Dv]
    """Return attention of blocks of queries to their keys, some blocks at a time."""
    budget = GATHERED_CUDA if query.is_cuda else GATHERED
    most = budget // (query.size(1) * (key.size(-1) + value.size(-1)))
    if query.device.type == "cpu" and not dropout_p and not in_transform():
        output: Tensor = FusedBlocks.apply(query, key, value, groups, most, scale)  # type: ignore[no-untyped-call]
        return output

    def attend(piece: Piece) -> Tensor:  # once more in backward, rather than kept
        queries, keys, values = (
            _gather(rows, index).transpose(1, 2)  # [m, H, n, D]
            for rows, index in ((query, piece.queries), (key, piece.keys), (value, piece.keys))
        )
        part = wide_attention(queries, keys, values, piece.mask, dropout_p, False, scale)
        return part.transpose(1, 2).flatten(0, 1)

    indices, parts = [], []
    for piece in (piece for group in groups for piece in group.pieces(most)):
        indices.append(piece.queries.flatten())
        parts.append(recomputed(attend, piece))
    output = value.new_zeros(*query.shape[:2], value.size(-1))
    if not parts:  # zeros that the inputs have a gradient through
        return output + sum(tensor[:0].sum() for tensor in (query, key, value))
    return output.index_copy(0, torch.cat(indices), torch.cat(parts))


def _gather(rows: Tensor, index: Tensor) -> Tensor:  # [m, n, H, D]
    return rows.index_select(0, index.flatten()).view(*index.shape, *rows.shape[1:])


class FusedBlocks(torch.autograd.Function):
    """Attention of many blocks that keeps nothing but its inputs, its output and the row sums."""

    # Going through SDPA, autograd would keep the keys and values of every block, and each key is in
    # several. Here they are gathered again for the backward pass, a few blocks at a time.

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        groups: list[BatchGroup],
        most: int,
        scale: float,
    ) -> Tensor:
        output = value.new_zeros(*query.shape[:2], value.size(-1))
        sums = query.new_zeros(
            query.shape[:2], dtype=torch.promote_types(query.dtype, torch.float32)
        )
        for piece in (piece for group in groups for piece in group.pieces(most)):
            blocks = _blocks(piece, query, key, value)
            part, part_sums = _forward(*blocks, attn_mask=_additive(piece, query), scale=scale)
            output[piece.queries] = part.transpose(1, 2)[..., : value.size(-1)]
            sums[piece.queries] = part_sums.transpose(1, 2)
        ctx.save_for_backward(query, key, value, output, sums)
        ctx.groups, ctx.most, ctx.scale = groups, most, scale
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, sums = ctx.saved_tensors
        grads = [
            torch.zeros_like(t, dtype=torch.promote_types(t.dtype, torch.float32))
            for t in (query, key, value)
        ]
        for piece in (piece for group in ctx.groups for piece in group.pieces(ctx.most)):
            blocks = _blocks(piece, query, key, value)
            width = blocks[0].size(-1)
            parts = _backward(
                _take(grad, piece.queries, width),
                *blocks,
                _take(output, piece.queries, width),
                sums[piece.queries].transpose(1, 2),
                0.0,
                False,
                attn_mask=_additive(piece, query),
                scale=ctx.scale,
            )
            for total, part, index in zip(
                grads, parts, (piece.queries, piece.keys, piece.keys), strict=True
            ):
                rows = part[..., : total.size(-1)].transpose(1, 2).flatten(0, 1)
                add_rows(total, index.flatten(), rows.to(total.dtype))
        given = zip(grads, (query, key, value), strict=True)
        return (*(total.to(tensor.dtype) for total, tensor in given), None, None, None)


def _blocks(piece: Piece, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """Return the blocks' queries, keys and values, padded to one width: ``[m, H, n, D]`` each."""
    width = max(query.size(-1), value.size(-1))
    sides = (query, piece.queries), (key, piece.keys), (value, piece.keys)
    return tuple(_take(rows, index, width) for rows, index in sides)


def _take(rows: Tensor, index: Tensor, width: int) -> Tensor:
    """Return rows, padded to a width; those of a single block that lie side by side as they are."""
    first, last = int(index[0, 0]), int(index[-1, -1])
    side_by_side = len(index) == 1 and last - first + 1 == index.size(1)
    # The kernel takes it that features lie side by side, too.
    as_they_are = side_by_side and rows.stride(-1) == 1
    taken = rows[None, first : last + 1] if as_they_are else _gather(rows, index)
    missing = width - rows.size(-1)
    return (F.pad(taken, (0, missing)) if missing else taken).transpose(1, 2)


def _additive(piece: Piece, query: Tensor) -> Tensor | None:
    if piece.mask is None:
        return None
    return torch.zeros_like(piece.mask, dtype=query.dtype).masked_fill_(~piece.mask, -torch.inf)
