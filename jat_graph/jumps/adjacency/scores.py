"""Scaled scores X between queries and keys, computed in one place for every backend."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import torch
from torch import Tensor

from jat_graph.core.compiling import full_precision
from jat_graph.core.masks import TokenMask
from jat_graph.jumps.kernels import query_peaks

# Elements of one block of scores when they are streamed.
BLOCK = 2**22


class QueryKeyScores:
    """Scores of queries, or of some, and keys ``[B, H, L, D]``, X = scale · Q Kᵀ (Eq. 1)."""

    def __init__(self, query: Tensor, key: Tensor, scale: float) -> None:
        self.dtype = score_dtype(query, key)
        self.query, self.key, self.scale = query.to(self.dtype), key.to(self.dtype), scale
        self.shape, self.device = key.shape[:3], query.device  # B, H, L

    def columns(self, index: Tensor | None, rows: slice = slice(None)) -> Tensor:
        """Return scores to the keys ``index`` ``[B, H, U]`` (None: all): ``[B, H, rows, U]``."""
        return attention_scores(self.query[:, :, rows], _rows(self.key, index), self.scale)

    def significance(self, queries: Tensor | None, seen: Tensor) -> Tensor:
        """Return max_i X_ij − mean_i X_ij over some queries i, for every key j: ``[B, H, L]``."""
        query = _rows(self.query, queries)
        share = seen / seen.sum(-1, keepdim=True).clamp(min=1)
        with full_precision(self.device):
            # The mean of the products is the product with the mean.
            mean = share.to(self.dtype).unsqueeze(-2) @ query  # [B, H, 1, D]
            mean = (self.key @ mean.mT).squeeze(-1) * self.scale
            peak = query_peaks(query if self.scale >= 0 else -query, self.key, seen)
        return peak * abs(self.scale) - mean

    def key_norms(self, index: Tensor | None) -> Tensor:
        """Return max(1, ‖K_j‖) of the keys ``index``: ``[B, H, U]``."""
        norms: Tensor = torch.linalg.vector_norm(_rows(self.key, index), dim=-1)
        return norms.clamp(min=1.0)


class MapScores:
    """The same of a ready-made map of scores ``[B, H, L, L]``, query by key."""

    def __init__(self, scores: Tensor) -> None:
        self.dtype = score_dtype(scores, scores)
        self.scores = scores.to(self.dtype)
        self.shape, self.device = scores.shape[:3], scores.device  # B, H, L

    def columns(self, index: Tensor | None, rows: slice = slice(None)) -> Tensor:
        scores = self.scores[:, :, rows]
        if index is None:
            return scores
        return scores.gather(3, index.unsqueeze(2).expand(-1, -1, scores.size(2), -1))

    def significance(self, queries: Tensor | None, seen: Tensor) -> Tensor:
        scores = _rows(self.scores, queries)
        seen = seen.unsqueeze(-1)
        mean = scores.masked_fill(~seen, 0.0).sum(-2) / seen.sum(-2).clamp(min=1)
        return scores.masked_fill(~seen, -torch.inf).amax(-2) - mean

    def key_norms(self, index: Tensor | None) -> Tensor:
        """Raise: a map has no key vectors."""
        raise ValueError("normalize_keys needs query and key, got a map of scores")


ScoreSource: TypeAlias = QueryKeyScores | MapScores


@dataclass(frozen=True)
class SelectedKeys:
    """The keys that vote, or are stones, per sequence and head."""

    index: Tensor | None = None  # positions in rising order, [B, H, U]; None for every position
    valid: Tensor | None = None  # which entries count, bool [B|1, H|1, U]; None if all do

    def number(self, source: ScoreSource) -> int:
        """Return the number of entries, U."""
        return source.shape[2] if self.index is None else self.index.size(-1)

    def positions(self, entries: slice, source: ScoreSource) -> Tensor | None:
        """Return the positions of some entries, ``[B, H, u]``; None for every position."""
        if self.index is not None:
            return self.index[..., entries]
        batch, heads, length = source.shape
        if entries.stop is None or (entries.start == 0 and entries.stop == length):
            return None
        return torch.arange(length, device=source.device)[entries].expand(batch, heads, -1)

    def visible(
        self,
        entries: slice,
        rows: slice,
        nodes: Tensor | None,  # tokens that are nodes of the graph, bool [B|1, H|1, L]
        mask: TokenMask,
        source: ScoreSource,
    ) -> Tensor | None:
        """Return M_ij for nodes i and keys j, ``[B|1, H|1, rows|1, u]``, or None for all."""
        parts = []
        if self.valid is not None:
            parts.append(self.valid[..., None, entries])
        if nodes is not None:
            parts.append(nodes[..., rows].unsqueeze(-1))
        if mask.causal:
            position = torch.arange(source.shape[2], device=source.device)
            every = position[None, None] if self.index is None else self.index
            parts.append(every[..., None, entries] <= position[rows].unsqueeze(-1))
        if mask.pairs is not None:
            batch, heads, length = source.shape
            pairs: Tensor = mask.pairs
            index = self.positions(entries, source)
            if index is not None:
                index = index.unsqueeze(2).expand(-1, -1, length, -1)
                pairs = pairs.expand(batch, heads, -1, -1).gather(3, index)
            parts.append(pairs[:, :, rows])
        return reduce(torch.logical_and, parts) if parts else None


def _rows(tensor: Tensor, index: Tensor | None) -> Tensor:
    """Return the rows ``index`` ``[B, H, n]`` of a tensor ``[B, H, L, D]``, or all of them."""
    if index is None:
        return tensor
    return tensor.gather(2, index.unsqueeze(-1).expand(-1, -1, -1, tensor.size(-1)))


def attention_scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Return X = scale · Q Kᵀ (Eq. 1), ``[..., L, U]``: where every backend takes X from."""
    # Autocast and TF32 are off around it, so that a vote does not depend on either.
    dtype = score_dtype(query, key)
    with full_precision(query.device):
        # The scores of one key lie together, as counting and sorting read them.
        columns = key.to(dtype) @ query.to(dtype).transpose(-1, -2)
        return columns.mul_(scale).transpose(-1, -2)


def score_dtype(query: Tensor, key: Tensor) -> torch.dtype:
    """Return the dtype of scores: float64 where both inputs are float64, else float32."""
    return torch.float64 if query.dtype == key.dtype == torch.float64 else torch.float32
