"""Attention under a pattern where other processes have the rest of the sequence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.attention.patterns.blocked import attend_rows
from jat_graph.attention.patterns.dense import PatternInputs, same_precision
from jat_graph.attention.patterns.layout import BatchGroup, Lookup, kept_layout, valid_rows
from jat_graph.masks.tokens import SequenceShard
from jat_graph.patterns.base import Pattern


# Layouts are Python: compiled code steps out here and goes on behind.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def run_shard(inputs: PatternInputs) -> Tensor:  # [B, H, L_r, Dv]
    """Return attention of a shard's tokens under a pattern."""
    # Keys and values come from where they are, those alone that some query here may read. A token
    # that reads everything goes the other way: its query visits all processes.
    return inputs.each_rule(_run_rule)


def _run_rule(inputs: PatternInputs, rule: Pattern, valid: Tensor | None) -> Tensor:
    shard = inputs.mask.shard
    assert shard is not None
    batch, heads, length, _ = inputs.query.shape
    tensors = same_precision(inputs.query, inputs.key, inputs.value)
    query, key, value = (tensor.transpose(1, 2).flatten(0, 1) for tensor in tensors)
    counts, rows = shard.counts(valid, batch), valid_rows(valid, batch, length, query.device)
    groups, owner, row = _keys_read(rule, shard, counts, rows)
    own = torch.cat([key, value], dim=-1)
    own = own if valid is None else own.index_select(0, rows.flatten())
    found = shard.fetch(own, owner, row)
    keys, values = found.split_with_sizes([key.size(-1), value.size(-1)], dim=-1)
    output = attend_rows(query, keys, values, groups, inputs.dropout_p, inputs.scale)
    output = output.view(batch, length, heads, -1).transpose(1, 2)
    number = min(rule.num_global, int(counts.sum(0).max()))
    start = counts[: shard.rank].sum(0).to(rows.device)
    return _add_global(inputs, output, valid, rows % length, start, number) if number else output


def _keys_read(
    rule: Pattern,
    shard: SequenceShard,
    counts: Tensor,  # valid tokens of each process, [processes, B]
    rows: Tensor,  # of this shard's tokens, padding last, [B, L_r]
) -> tuple[list[BatchGroup], Tensor, Tensor]:
    """Return blocks of this shard's queries, and the owner and its row of each key they read."""
    device = rows.device
    lengths = torch.tensor(shard.lengths, device=device)
    groups, owners, found, size = [], [rows.new_empty(0)], [rows.new_empty(0)], 0
    columns, which = torch.unique(counts, dim=1, return_inverse=True)
    for number, column in enumerate(columns.mT):  # of sequences cut alike
        stops = column.cumsum(0)
        first, stop = int(stops[shard.rank] - column[shard.rank]), int(stops[shard.rank])
        wanted = range(max(first, rule.num_global), stop)
        layout = kept_layout(rule, int(stops[-1]), device, wanted) if wanted else ()
        if not layout:
            continue
        indices = (which == number).nonzero().to(device)  # [m, 1]
        ranks = torch.unique(torch.cat([group.keys.flatten() for group in layout]))
        starts = (stops - column).to(device)
        owner = torch.searchsorted(starts, ranks, right=True) - 1
        row = indices * lengths[owner] + ranks - starts[owner]  # [m, keys]
        held = size + torch.arange(row.numel(), device=device).view_as(row)
        groups += [
            BatchGroup(
                group,
                Lookup(group.queries - first, rows[indices.squeeze(1)]),
                Lookup(torch.searchsorted(ranks, group.keys), held),
            )
            for group in layout
        ]
        owners.append(owner.expand_as(row).flatten())
        found.append(row.flatten())
        size += row.numel()
    return groups, torch.cat(owners), torch.cat(found)


def _add_global(
    inputs: PatternInputs,
    output: Tensor,  # of the other queries, [B, H, L_r, Dv]
    valid: Tensor | None,  # [B|1, L_r]
    order: Tensor,  # this shard's tokens, padding last, [B, L_r]
    start: Tensor,  # valid tokens of the shards before, [B]
    number: int,
) -> Tensor:  # [B, H, L_r, Dv]
    """Add the outputs of the first tokens of a sequence, which read everything."""
    # Every process takes the softmax over its own keys; their sums make it that over all keys.
    shard = inputs.mask.shard
    assert shard is not None
    rank = torch.arange(number, device=order.device) - start[:, None]  # here, [B, n]
    count = order.size(1) if valid is None else valid.sum(-1, keepdim=True)
    elsewhere = ((rank < 0) | (rank >= count))[:, None, :, None]
    index = order.gather(1, rank.clamp(0, order.size(1) - 1))[:, None, :, None]
    dtype = torch.promote_types(output.dtype, torch.float32)
    with torch.autocast(output.device.type, enabled=False):
        query, key, value = (
            x.to(dtype) for x in same_precision(inputs.query, inputs.key, inputs.value)
        )
        query = shard.sum(query.take_along_dim(index, 2).masked_fill(elsewhere, 0.0))
        scores = query @ key.mT * inputs.scale  # [B, H, n, L_r]
        if valid is not None:
            scores = scores.masked_fill(~valid[:, None, None], -torch.inf)
        # A process may have no key of a sequence.
        highest = shard.highest(scores.amax(-1, keepdim=True)).clamp(min=torch.finfo(dtype).min)
        shares = (scores - highest).exp()
        own = F.dropout(shares, inputs.dropout_p) @ value, shares.sum(-1, keepdim=True)
        sums = shard.sum(torch.cat(own, dim=-1))
        total = sums[..., -1:]
        found = sums[..., :-1] / total.masked_fill(total == 0, 1.0)
    found = found.to(output.dtype).masked_fill(elsewhere, 0.0)
    return output.scatter_add(2, index.expand_as(found), found)
