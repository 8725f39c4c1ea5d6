"""A as a sum of threshold graphs, one a voting key: no edge is ever stored."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from jat_graph.ballot import Ballot
from jat_graph.operators.base import Operator
from jat_graph.scores import BLOCK
from jat_graph.votes import VoteRule

# Keys up to which their scores are kept between products; beyond, they are computed again.
KEPT_KEYS = 256


class ThresholdOperator(Operator):
    """An operator that holds queries, keys and who votes, and multiplies by prefix sums.

    For one key the joined tokens are a prefix or a suffix of the tokens in the order of their
    scores. So A x is a sort and a prefix sum a key: O(U · L · (log L + D)) time, and memory for one
    block of keys. A is symmetric, so the backward pass is the forward pass.

    Args:
        ballot: Who votes on which pairs, by hard votes, under no mask but padding.

    Reference:
        Mahadev & Peled, *Threshold Graphs and Related Topics*, 1995.
    """

    def __init__(self, ballot: Ballot) -> None:
        batch, heads, length = ballot.source.shape
        self.ballot, self.shape = ballot, torch.Size((batch, heads, length, length))
        self.dtype, self.device = ballot.source.dtype, ballot.source.device
        self._voters = ballot.voters().unsqueeze(-1)  # [B|1, H|1, 1, 1]

    @property
    def degree(self) -> Tensor:
        """Row sums of the matrix itself, ``[B, H, L]``, in ``dtype``."""
        with torch.no_grad():
            total = self._sum_joined(self._nodes.expand(*self.shape[:3], 1))
            return ((total - self._self_votes) / self._voters).squeeze(-1)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        joined: Tensor = _SymmetricProduct.apply(x, self)  # type: ignore[no-untyped-call]
        return joined / self._voters + (diagonal - self._self_votes / self._voters) * x

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        return self._matmul(x, diagonal)

    @cached_property
    def _nodes(self) -> Tensor:
        """1 for nodes of the graph, 0 for other tokens, ``[B|1, H|1, L, 1]``."""
        if self.ballot.nodes is None:
            return torch.ones(1, 1, self.shape[-1], 1, dtype=self.dtype, device=self.device)
        return self.ballot.nodes.to(self.dtype).unsqueeze(-1)

    @cached_property
    def _self_votes(self) -> Tensor:
        """Keys that would join a token with itself, ``[B, H, L, 1]``: taken out of every sum."""
        total = torch.zeros(*self.shape[:3], 1, dtype=self.dtype, device=self.device)
        rule = self.ballot.rule
        for scores, norms in self._blocks():
            scores = scores.transpose(-1, -2)  # [B, H, u, L]
            votes = rule.votes(scores, scores, *_broadcast(rule, norms))
            total += votes.sum(2).unsqueeze(-1)
        return total

    @cached_property
    def _kept(self) -> tuple[Tensor, Tensor | None]:
        with torch.no_grad():
            return self.ballot.key_scores()

    def _blocks(self) -> Any:
        """Yield scores ``[B, H, L, u]`` and norms ``[B, H, u]`` of a block of keys at a time."""
        if self.ballot.num_keys > KEPT_KEYS:
            with torch.no_grad():
                for _, scores, norms in self.ballot.key_blocks(BLOCK):
                    yield scores, norms
            return
        scores, norms = self._kept
        batch, heads, length, _ = self.shape
        step = max(1, BLOCK // max(1, batch * heads * length))
        for start in range(0, scores.size(-1), step):
            keys = slice(start, start + step)
            yield scores[..., keys], None if norms is None else norms[..., keys]

    def _sum_joined(self, x: Tensor) -> Tensor:
        """Return Σ_j Σ_k 1[j joins (i, k)] x_k over nodes k, the token itself included."""
        x = x * self._nodes
        total = torch.zeros_like(x)
        for scores, norms in self._blocks():
            width = max(1, BLOCK // max(1, x.numel()))
            for start in range(0, scores.size(-1), width):
                keys = slice(start, start + width)
                norm = None if norms is None else norms[..., keys]
                total += _joined_by_keys(self.ballot.rule, scores[..., keys], norm, x)
        return total


class _SymmetricProduct(torch.autograd.Function):
    """Σ_j A_j x without the self-loops taken out; its own transpose."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, operator: ThresholdOperator) -> Tensor:
        ctx.operator = operator
        return operator._sum_joined(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        product: Tensor = _SymmetricProduct.apply(grad, ctx.operator)  # type: ignore[no-untyped-call]
        return product, None


def _broadcast(rule: VoteRule, norms: Tensor | None) -> tuple[Tensor | None, Tensor]:
    """Return norms and ρ as they broadcast against ``[B, H, u, L]``."""
    return None if norms is None else norms.unsqueeze(-1), rule.threshold[..., None, None]


def _joined_by_keys(rule: VoteRule, scores: Tensor, norms: Tensor | None, x: Tensor) -> Tensor:
    """Return Σ_j Σ_k 1[j joins (i, k)] x_k for a block of keys, ``[B, H, L, D]``.

    A masked score is NaN: as a query it joins nothing, and among the sorted tokens it stands for 0,
    where its features are 0 as well.
    """
    columns = scores.transpose(-1, -2)  # [B, H, u, L]
    order = columns.nan_to_num().sort(dim=-1)
    count = _search(rule, columns, order.values, norms)
    batch, heads, num_keys, length = columns.shape
    width = x.size(-1)
    index = order.indices.unsqueeze(-1).expand(-1, -1, -1, -1, width)
    ranked = x.unsqueeze(2).expand(-1, -1, num_keys, -1, -1).gather(3, index)
    zero = ranked.new_zeros(batch, heads, num_keys, 1, width)
    # Each side is summed from its strongest end, so that nothing is ever subtracted.
    prefix = torch.cat([zero, ranked.cumsum(3), zero, ranked.flip(3).cumsum(3)], dim=3)
    end = count + (columns >= 0) * (length + 1)
    return prefix.gather(3, end.unsqueeze(-1).expand(-1, -1, -1, -1, width)).sum(2)


def _search(rule: VoteRule, columns: Tensor, ranked: Tensor, norms: Tensor | None) -> Tensor:
    """Return how many tokens each query joins, counted from the strongest of its own sign.

    Searches with the vote itself: the rounded product rises with the other score, so its votes are
    the first ones in that order.
    """
    length = columns.size(-1)
    norm, threshold = _broadcast(rule, norms)
    positive = columns >= 0
    low = torch.zeros_like(columns, dtype=torch.long)  # the first `low` join
    high = torch.full_like(low, length)  # from `high` on none does
    for _ in range(length.bit_length()):
        middle = (low + high) // 2
        place = torch.where(positive, length - 1 - middle, middle).clamp(0, length - 1)
        joins = rule.votes(columns, ranked.gather(-1, place), norm, threshold)
        joins = joins & (low < high)
        low = torch.where(joins, middle + 1, low)
        high = torch.where(joins, high, torch.minimum(high, middle))
    return low
