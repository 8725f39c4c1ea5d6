"""Attention under a pattern as a PyG graph: one edge a pair, a softmax over each query's edges."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import scatter, softmax

from jat_graph.attention.patterns.dense import PatternInputs, same_precision
from jat_graph.attention.patterns.layout import batch_groups
from jat_graph.patterns.base import Pattern

# Keys looked at in one go while the edges are listed.
KEYS = 2**14


# Edges are listed in Python: compiled code steps out here and goes on behind.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def run(inputs: PatternInputs) -> Tensor:  # [B, H, L, Dv]
    """Return attention under a pattern by messages along its edges."""
    return inputs.each_rule(_run_rule)


def _run_rule(inputs: PatternInputs, rule: Pattern, valid: Tensor | None) -> Tensor:
    """Run heads on the edges of a rule, where token i of sequence b is node b · L + i."""
    batch, heads, length, _ = inputs.query.shape
    device = inputs.query.device
    edges = [torch.empty(2, 0, dtype=torch.long, device=device)]
    for group in batch_groups(rule, valid, batch, length, device):
        for queries, keys, mask in group.pieces(KEYS):
            shape = (*queries.shape, keys.size(1))
            pairs = keys[:, None].expand(shape), queries[:, :, None].expand(shape)
            if mask is None:
                edges.append(torch.stack(pairs).flatten(1))
            else:
                allowed = mask.squeeze(1).expand(shape)
                edges.append(torch.stack([side[allowed] for side in pairs]))
    source, target = torch.cat(edges, dim=1)
    tensors = same_precision(inputs.query, inputs.key, inputs.value)
    dtype = torch.promote_types(tensors[0].dtype, torch.float32)
    with torch.autocast(device.type, enabled=False):
        query, key, value = (t.transpose(1, 2).flatten(0, 1).to(dtype) for t in tensors)
        scores = (query[target] * key[source]).sum(-1) * inputs.scale  # [E, H]
        weights = F.dropout(softmax(scores, target, num_nodes=batch * length), inputs.dropout_p)
        messages = weights.unsqueeze(-1) * value[source]  # [E, H, Dv]
        output: Tensor = scatter(messages, target, dim_size=batch * length)
    return output.to(tensors[2].dtype).view(batch, length, heads, -1).transpose(1, 2)
