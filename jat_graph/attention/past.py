"""Propagation of the next tokens of a causal sequence, from what earlier tokens left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from jat_graph.adjacency.pairs import PairAdjacency, sum_soft_votes
from jat_graph.adjacency.scores import full_precision
from jat_graph.attention.heads import JumpHeads
from jat_graph.kernels import count_votes
from jat_graph.masks.tokens import TokenMask
from jat_graph.operators import NormalizedOperator

Hop: TypeAlias = tuple[Tensor, Tensor]

LEAST_ROOM = 64  # tokens


@dataclass
class KeptScores:
    """Scores of the first tokens to the voting keys, with room for more, which is NaN."""

    # NaN never votes, so that the inner loops may run over the room, and nothing is copied for a
    # new token.

    columns: Tensor  # the scores, NaN where masked, and the room, [B, H, ≥ U, ≥ L]
    length: int = 0  # L

    def add(self, columns: Tensor) -> None:  # [B, H, U, n]
        """Add the next tokens."""
        num_keys, length = columns.size(2), self.length + columns.size(3)
        old, frozen = self.columns, self.columns.is_inference()
        fits = num_keys <= old.size(2) and length <= old.size(3)
        if not fits or (frozen and not torch.is_inference_mode_enabled()):
            sizes = [size + max(LEAST_ROOM, size // 8) for size in (num_keys, length)]
            self.columns = old.new_full((*old.shape[:2], *sizes), torch.nan)
            known = old[:, :, :num_keys, : self.length]  # after a crop, more keys than can vote now
            self.columns[:, :, : known.size(2), : self.length] = known
        self.columns[:, :, :num_keys, self.length : length] = columns
        self.length = length

    def crop(self, length: int) -> None:
        """Forget the tokens from a position on, and the room."""
        self.length = min(self.length, length)
        self.columns = self.columns[..., : self.length]


@dataclass
class PastTokens:
    """What the next tokens of a causal sequence need of the earlier ones."""

    # With a causal mask a token joins earlier ones only, so that its propagated query and key are
    # final. A new token compares its scores to the voting keys with those of each earlier token,
    # which takes O(U · L), and adds up their features, O(L · D) a hop.

    hops: list[Hop] = field(default_factory=list)  # [B, H, L, D] each, H the heads that jump
    inverse_root: Tensor | None = None  # D̃^-½, [B, H, L, 1]
    valid: Tensor | None = None  # tokens that are no padding, bool [B, H|1, L]; None if all are
    excluded: Tensor | None = None  # those that never vote, bool [B, H|1, L]; None if none are
    scores: KeptScores | None = None  # of earlier tokens; None before the next token needs them

    @property
    def length(self) -> int:
        """Number of tokens L."""
        return self.hops[0][0].size(2) if self.hops else 0

    def keep(self, hops: list[Hop], operator: NormalizedOperator, mask: TokenMask) -> None:
        """Take over what the first tokens computed all at once."""
        batch, _, length, _ = hops[0][0].shape
        if mask.pairs is None and (mask.causal or at_most_one(mask.valid, length)):
            self.valid, self.excluded = (
                None if part is None else part.expand(batch, -1, -1)
                for part in (mask.valid, mask.excluded)
            )
            self.hops, self.inverse_root = hops, operator.scale
            self.scores = None

    def extend(
        self,
        query: Tensor,  # [B, H, n, D]
        key: Tensor,  # [B, H, n, D]
        jumping: JumpHeads,
        mask: TokenMask,
        scale: float,
    ) -> tuple[list[Hop], Tensor | None]:
        """Return the hops of the next n queries and of all keys, and the nodes; and keep them."""
        first = _append(self.hops[0], (query, key))
        rows = slice(self.length, first[0].size(2))
        soft = jumping.config.jump_graph.soft_temperature is not None
        with torch.set_grad_enabled(soft and torch.is_grad_enabled()):
            own = mask.select_heads(jumping.heads)
            pairs = PairAdjacency.of_heads(jumping.config, *first, scale, own)
            weights = self._rows_of_adjacency(pairs, rows)
            root = (weights.sum(-1, keepdim=True) + 1).rsqrt()
            earlier = [] if self.inverse_root is None else [self.inverse_root]
            self.inverse_root = torch.cat([*earlier, root], dim=2)
            weights = root * weights * self.inverse_root.mT
        hops = [first]
        with full_precision(query.device):
            for old in self.hops[1:]:
                queries, keys = (
                    weights @ x + root.square() * x[:, :, rows]
                    for x in (features.to(weights.dtype) for features in hops[-1])
                )
                hops.append(_append(old, (queries, keys)))
        self.hops, self.valid, self.excluded = hops, mask.valid, mask.excluded
        return [(queries[:, :, rows], keys) for queries, keys in hops], pairs.selected

    def crop(self, length: int) -> None:
        """Forget the tokens from a position on."""
        self._change(lambda x: x[:, :, :length])
        if self.scores is not None:
            self.scores.crop(length)

    def change_batch(self, change: Callable[[Tensor], Tensor]) -> None:
        """Select, reorder or repeat the sequences of the batch."""
        self._change(change)
        if self.scores is not None:
            self.scores.columns = change(self.scores.columns)

    def _change(self, change: Callable[[Tensor], Tensor]) -> None:
        """Change everything that is laid out ``[B, H, L, ...]``."""
        self.hops = [(change(queries), change(keys)) for queries, keys in self.hops]
        self.inverse_root, self.valid, self.excluded = (
            None if part is None else change(part)
            for part in (self.inverse_root, self.valid, self.excluded)
        )

    def _rows_of_adjacency(self, pairs: PairAdjacency, rows: slice) -> Tensor:
        """Return A of the next tokens, ``[B, H, n, L]``, and keep their scores."""
        if pairs.rule.soft_temperature is not None:
            # A gradient flows through the scores: they are not kept.
            votes = sum_soft_votes(pairs.rule, *pairs.key_scores(), rows)
        else:
            start = 0 if self.scores is None else self.scores.length
            columns, limits = pairs.columns(rows=slice(start, rows.stop))
            if self.scores is None:
                self.scores = KeptScores(columns[:, :, :0, :0])
            self.scores.add(columns)
            kept = self.scores.columns
            limits = F.pad(limits, (0, kept.size(2) - limits.size(2)))
            votes = count_votes(kept, limits, rows)[..., : rows.stop]
        return votes.tril(rows.start - 1) / pairs.voters()[:, :, rows].unsqueeze(-1)


def at_most_one(valid: Tensor | None, length: int) -> bool:
    """Tell whether no sequence has two tokens, which causal order could tell apart."""
    return length == 1 if valid is None else int(valid.sum(-1).max()) <= 1


def _append(old: Hop, new: Hop) -> Hop:
    return torch.cat([old[0], new[0]], dim=2), torch.cat([old[1], new[1]], dim=2)
