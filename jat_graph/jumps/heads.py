"""Heads as plain attention on features, and those that jump."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from jat_graph.core.heads import HeadGroup, merge_heads
from jat_graph.core.masks import causal_rows
from jat_graph.core.tensors import recomputed
from jat_graph.jumps.adjacency.scores import attention_scores
from jat_graph.jumps.config import JatConfig, config_of_head
from jat_graph.jumps.fields import LEARNED, HopGroups, HopWeights, Triple
from jat_graph.jumps.patterns.base import Pattern

# Scores that are held at a time: 64 MiB in float32.
BLOCK = 2**24

# Features that the fast kernels on CUDA take.
CUDA_WIDTH = 256


class JumpStrength(nn.Module):
    """What jump heads learn: a module of its own, which PEFT can save, in layers and models."""

    def __init__(self, theta: nn.Parameter) -> None:  # [3, hops, H]
        super().__init__()
        self.theta = theta

    def forward(self) -> Tensor:  # [3, hops, H]
        return self.theta


def combine_hops(
    hops: list[tuple[Tensor, Tensor]], weights: HopWeights, nodes: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return features whose plain product is Σ_p w_p Φ_p; where nodes are given, between two nodes.

    Elsewhere it is S. The weights go on the query side whole: roots would round on both sides.
    """
    terms = [(*hop, weight) for hop, weight in zip(hops, weights, strict=False) if weight != 0]
    if nodes is None:
        queries = [query if weight == 1 else query * weight for query, _, weight in terms]
        keys = [key for _, key, _ in terms]
        if len(terms) == 1:
            return queries[0], keys[0]
        return torch.cat(queries, dim=-1), torch.cat(keys, dim=-1)
    inside = nodes.to(hops[-1][0].dtype)  # m, [B, H, L, 1]
    query, key = hops[0]
    here = inside[:, :, -query.size(2) :]  # of the queries, which may be the last tokens only
    queries = [(1 - here) * query, here * query]
    keys = [key, ((1 - inside) + weights[0] * inside) * key]
    for far_query, far_key, weight in terms[1 if weights[0] else 0 :]:
        queries.append(weight * here * far_query)
        keys.append(inside * far_key)
    return torch.cat(queries, dim=-1), torch.cat(keys, dim=-1)


def attend(
    groups: list[HeadGroup],
    *,
    attn_mask: Tensor | None,  # as SDPA takes it
    is_causal: bool,
    dropout_p: float,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return softmax(scale · Q Kᵀ) V of all heads and their value updates, put together again."""
    outputs = []
    for group in groups:
        masks = _cut_heads(attn_mask, group.heads)
        # Ordinary heads go as they are: their outputs are the base model's, bit for bit.
        run = wide_attention if group.jumps else F.scaled_dot_product_attention
        # SDPA's fast path multiplies its mask, too: a negative scale would make inf of -inf.
        query = group.query if scale >= 0 else -group.query
        grouped = group.key.size(1) != group.query.size(1)
        options: dict[str, Any] = {"scale": abs(scale)} | ({"enable_gqa": True} if grouped else {})
        output = run(query, *group[2:4], masks, dropout_p, is_causal, **options)
        outputs.append(group.finish(output))
    return merge_heads([group.heads for group in groups], outputs)


def attention_probabilities(
    groups: list[HeadGroup], *, attn_mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:  # [B, H, L, L]
    """Return the attention probabilities of all heads, put together again."""
    rows = []
    for group in groups:
        scores = attention_scores(group.query, group.key, scale)
        masks = _cut_heads(attn_mask, group.heads)
        rows.append(softmax_rows(scores, masks, is_causal).to(group.query.dtype))
    return merge_heads([group.heads for group in groups], rows)


def wide_attention(
    query: Tensor,  # [B, H, L, F]
    key: Tensor,  # [B, H, L, F]
    value: Tensor,  # [B, H, L, Dv]
    attn_mask: Tensor | None,  # [B, H, L, L]
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return softmax(scale · Q Kᵀ) V on a path that stores nothing of size L×L."""
    # SDPA leaves its fast path unless queries, keys and values have one width, so the narrower ones
    # are padded with zeros, which change no score and are cut off the output.
    width, value_width = query.size(-1), value.size(-1)
    widest = max(width, value_width)
    if query.is_cuda and widest > CUDA_WIDTH:
        return blocked_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    query, key, value = (
        x if x.size(-1) == widest else F.pad(x, (0, widest - x.size(-1)))
        for x in (query, key, value)
    )
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    )
    return output if widest == value_width else output[..., :value_width]


def blocked_attention(
    query: Tensor,  # [B, H, L, F]
    key: Tensor,  # [B, H, Lk, F]
    value: Tensor,  # [B, H, Lk, Dv]
    attn_mask: Tensor | None,  # [B, H, L, Lk]
    dropout_p: float,
    is_causal: bool,
    scale: float,
) -> Tensor:  # [B, H, L, Dv]
    """Return softmax(scale · Q Kᵀ) V in blocks of queries, each computed again in backward."""
    # Any width; nothing of size L×L is stored. Sums accumulate in float32, or float64 for float64.
    (batch, heads, length, _), num_keys = query.shape, key.size(2)
    height = max(1, BLOCK // max(1, batch * heads * num_keys))
    dtype = torch.promote_types(query.dtype, torch.float32)

    def attend_block(rows: slice) -> Tensor:
        seen = slice(rows.stop if is_causal else num_keys)
        mask = attn_mask
        if mask is not None:
            mask = mask[..., seen] if mask.size(2) == 1 else mask[:, :, rows, seen]
        with torch.autocast(query.device.type, enabled=False):
            scores = query[:, :, rows].to(dtype) @ key[:, :, seen].to(dtype).mT * scale
            shares = F.dropout(softmax_rows(scores, mask, is_causal), dropout_p)
            return (shares @ value[:, :, seen].to(dtype)).to(value.dtype)

    blocks = [
        recomputed(attend_block, slice(start, min(start + height, length)))
        for start in range(0, length, height)
    ]
    return torch.cat(blocks, dim=2)


def softmax_rows(
    scores: Tensor,  # scaled, [B, H, q, L]
    attn_mask: Tensor | None,
    is_causal: bool,
) -> Tensor:  # [B, H, q, L]
    """Return the attention probabilities of a block of queries."""
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        # Filled once more, so that no gradient comes back from a row without a key, which is 0/0.
        scores = (scores + attn_mask).masked_fill(attn_mask.isneginf(), -torch.inf)
    if is_causal:
        seen = causal_rows(scores.size(-2), scores.size(-1), scores.device)
        scores = scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).nan_to_num()


def _cut_heads(attn_mask: Tensor | None, heads: tuple[int, ...]) -> Tensor | None:
    if attn_mask is None or attn_mask.size(1) in (1, len(heads)):
        return attn_mask
    return attn_mask[:, list(heads)]


@dataclass(frozen=True)
class JumpHeads:
    """The heads of a layer that jump, and what their settings come to."""

    config: JatConfig  # over these heads, as JatConfig.for_layer gives it
    heads: tuple[int, ...]  # indices in the layer, in rising order
    # Hop weights by the indices into ``heads`` that share them.
    hop_groups: HopGroups = field(init=False, compare=False)
    strengths: tuple[Triple, ...] = field(init=False, compare=False)  # of each hop
    highest_hop: int = field(init=False, compare=False)
    # Whether no head can differ from ordinary attention, whatever its scores.
    is_identity: bool = field(init=False, compare=False)
    pattern: Pattern | None = field(init=False, compare=False)  # of all heads of the layer

    def __post_init__(self) -> None:
        config, number = self.config, len(self.heads)
        groups = {tuple(sorted(own)): w for own, w in config.hop_groups(number).items()}
        strengths, thresholds = config.strengths(), config.jump_graph.thresholds(number)
        if strengths:
            highest, is_identity = config.hops, not any(map(any, strengths))
        else:
            highest = max(map(len, groups.values())) - 1
            rated = getattr(config.jump_graph, "vote_rate", None) is not None
            isolated = [not rated and threshold == math.inf for threshold in thresholds]
            is_identity = all(
                [weight for weight in weights if weight != 0] == [1]
                and (weights[0] == 1 or all(isolated[index] for index in own))
                for own, weights in groups.items()
            )
        for name, value in (
            ("hop_groups", groups),
            ("strengths", strengths),
            ("highest_hop", highest),
            ("is_identity", not self.heads or is_identity),
            ("pattern", config.attention_pattern()),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def everyone(cls, config: JatConfig, num_heads: int) -> JumpHeads:
        """Return all heads as ones that jump."""
        return cls(config, tuple(range(num_heads)))

    def of_head(self, index: int) -> JumpHeads:
        """Return one of these heads alone."""
        config = config_of_head(self.config, index, len(self.heads))
        return JumpHeads(config, self.heads[index : index + 1])

    def new_strength(self) -> torch.nn.Parameter | None:
        """Return what the heads learn of how strongly to jump, from 0 on; None if nothing."""
        if not any(LEARNED in triple for triple in self.strengths):
            return None
        return torch.nn.Parameter(torch.zeros(3, len(self.strengths), len(self.heads)))
