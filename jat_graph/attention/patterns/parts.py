"""Attention under a pattern where other processes have the rest of the sequence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from jat_graph.attention.patterns.blocked import attend_rows
from jat_graph.attention.patterns.job import Job, same_precision
from jat_graph.attention.patterns.layout import BatchGroup, Lookup, kept_layout, valid_rows
from jat_graph.masks.parts import Part
from jat_graph.patterns.base import Pattern


# Layouts are Python: compiled code steps out here and goes on behind.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def run_part(job: Job) -> Tensor:  # [B, H, L_r, Dv]
    """Return attention of a part's tokens under a pattern.

    Keys and values come from where they are, those alone that some query here may read. A token
    that reads everything goes the other way: its query visits all processes.
    """
    return job.each_rule(_run_rule)


def _run_rule(job: Job, rule: Pattern, valid: Tensor | None) -> Tensor:
    part = job.mask.part
    assert part is not None
    batch, heads, length, _ = job.query.shape
    tensors = same_precision(job.query, job.key, job.value)
    query, key, value = (tensor.transpose(1, 2).flatten(0, 1) for tensor in tensors)
    counts, rows = part.counts(valid, batch), valid_rows(valid, batch, length, query.device)
    groups, owner, row = _halo(rule, part, counts, rows)
    own = torch.cat([key, value], dim=-1)
    own = own if valid is None else own.index_select(0, rows.flatten())
    found = part.fetch(own, owner, row)
    keys, values = found.split_with_sizes([key.size(-1), value.size(-1)], dim=-1)
    output = attend_rows(query, keys, values, groups, job.dropout_p, job.scale)
    output = output.view(batch, length, heads, -1).transpose(1, 2)
    number = min(rule.num_global, int(counts.sum(0).max()))
    start = counts[: part.rank].sum(0).to(rows.device)
    return _add_global(job, output, valid, rows % length, start, number) if number else output


def _halo(
    rule: Pattern,
    part: Part,
    counts: Tensor,  # valid tokens of each process, [processes, B]
    rows: Tensor,  # of this part's tokens, padding last, [B, L_r]
) -> tuple[list[BatchGroup], Tensor, Tensor]:
    """Return blocks of this part's queries, and the owner and its row of each key they read."""
    device = rows.device
    lengths = torch.tensor(part.lengths, device=device)
    groups, owners, found, size = [], [rows.new_empty(0)], [rows.new_empty(0)], 0
    columns, which = torch.unique(counts, dim=1, return_inverse=True)
    for number, column in enumerate(columns.mT):  # of sequences cut alike
        stops = column.cumsum(0)
        first, stop = int(stops[part.rank] - column[part.rank]), int(stops[part.rank])
        wanted = range(max(first, rule.num_global), stop)
        layout = kept_layout(rule, int(stops[-1]), device, wanted) if wanted else ()
        if not layout:
            continue
        places = (which == number).nonzero().to(device)  # [m, 1]
        ranks = torch.unique(torch.cat([group.keys.flatten() for group in layout]))
        starts = (stops - column).to(device)
        owner = torch.searchsorted(starts, ranks, right=True) - 1
        row = places * lengths[owner] + ranks - starts[owner]  # [m, keys]
        held = size + torch.arange(row.numel(), device=device).view_as(row)
        groups += [
            BatchGroup(
                group,
                Lookup(group.queries - first, rows[places.squeeze(1)]),
                Lookup(torch.searchsorted(ranks, group.keys), held),
            )
            for group in layout
        ]
        owners.append(owner.expand_as(row).flatten())
        found.append(row.flatten())
        size += row.numel()
    return groups, torch.cat(owners), torch.cat(found)


def _add_global(
    job: Job,
    output: Tensor,  # of the other queries, [B, H, L_r, Dv]
    valid: Tensor | None,  # [B|1, L_r]
    order: Tensor,  # this part's tokens, padding last, [B, L_r]
    start: Tensor,  # valid tokens of the parts before, [B]
    number: int,
) -> Tensor:  # [B, H, L_r, Dv]
    """Add the outputs of the first tokens of a sequence, which read everything.

    Every process takes the softmax over its own keys; their sums make it that over all keys.
    """
    part = job.mask.part
    assert part is not None
    rank = torch.arange(number, device=order.device) - start[:, None]  # here, [B, n]
    count = order.size(1) if valid is None else valid.sum(-1, keepdim=True)
    elsewhere = ((rank < 0) | (rank >= count))[:, None, :, None]
    place = order.gather(1, rank.clamp(0, order.size(1) - 1))[:, None, :, None]
    dtype = torch.promote_types(output.dtype, torch.float32)
    with torch.autocast(output.device.type, enabled=False):
        query, key, value = (x.to(dtype) for x in same_precision(job.query, job.key, job.value))
        query = part.sum(query.take_along_dim(place, 2).masked_fill(elsewhere, 0.0))
        scores = query @ key.mT * job.scale  # [B, H, n, L_r]
        if valid is not None:
            scores = scores.masked_fill(~valid[:, None, None], -torch.inf)
        # A process may have no key of a sequence.
        highest = part.highest(scores.amax(-1, keepdim=True)).clamp(min=torch.finfo(dtype).min)
        shares = (scores - highest).exp()
        own = F.dropout(shares, job.dropout_p) @ value, shares.sum(-1, keepdim=True)
        sums = part.sum(torch.cat(own, dim=-1))
        total = sums[..., -1:]
        found = sums[..., :-1] / total.masked_fill(total == 0, 1.0)
    found = found.to(output.dtype).masked_fill(elsewhere, 0.0)
    return output.scatter_add(2, place.expand_as(found), found)
