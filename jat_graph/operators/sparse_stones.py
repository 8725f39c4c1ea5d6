"""Propagation over stepping stones by the links that there are: none is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from jat_graph.adjacency.stones import StoneIncidence
from jat_graph.kernels.stone_means import StoneScores, give_back, share_out
from jat_graph.operators.base import Operator
from jat_graph.operators.stones import LARGEST, refuse_second_derivatives


class SparseStoneOperator(Operator):
    r"""P = (D + εI)⁻¹ (B S⁻¹ Bᵀ + εI), of a B that is never held.

    B S⁻¹ Bᵀ is a sum over stones. So the scores of a block of stones are computed, their links
    found, multiplied and forgotten, again for each product and in backward: O(links · D) time
    beside the scores, and memory for one block and the stones' means.

    Args:
        incidence: Which keys are stones, and how tokens stand on them, to nothing where scores are
            not above t; under no mask but padding.
    """

    def __init__(self, incidence: StoneIncidence) -> None:
        batch, heads, length = incidence.source.shape
        self.incidence, self.self_weight = incidence, incidence.rule.self_weight
        self.shape = torch.Size((batch, heads, length, length))
        self.dtype, self.device = incidence.source.dtype, incidence.source.device

    def blocks(self) -> Iterator[tuple[Tensor | None, StoneScores]]:
        """Yield the stones in blocks: their positions ``[B, H, u]`` (None: all), and scores."""
        incidence, rule = self.incidence, self.incidence.rule
        source, keys = incidence.source, incidence.keys
        threshold = rule.threshold.expand(*self.shape[:2], 1, 1).flatten()
        form = 1 + rule.both_sides, rule.incidence == "hard"
        for some in keys.slices(source, LARGEST[self.device.type]):
            columns = incidence.scores(some).mT.flatten(0, 1).contiguous()
            yield keys.positions(some, source), StoneScores(columns, threshold, *form)

    def _matmul(self, x: Tensor, diagonal: float) -> Tensor:
        shared, loops, total = self._share(x)
        product = torch.addcmul(shared, loops, x) / total
        return product + diagonal * x if diagonal else product

    def _rmatmul(self, x: Tensor, diagonal: float) -> Tensor:
        _, loops, total = self._share(x[..., :1])
        weighted = x / total
        return self._share(weighted)[0] + loops * weighted + diagonal * x

    def _share(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # [B, H, L, D], [B, H, L, 1] each
        """Return B S⁻¹ Bᵀ x, the self-loops, and the row sums of B with them."""
        source = self.incidence.source
        shared, degree = _SharedFeatures.apply(  # type: ignore[no-untyped-call]
            source.query, source.key, x.contiguous(), self
        )
        alone = (degree == 0).to(self.dtype)
        loops = alone if self.self_weight == 0 else torch.full_like(alone, self.self_weight)
        return shared, loops, degree + loops


class _SharedFeatures(torch.autograd.Function):
    """B S⁻¹ Bᵀ x and the row sums of B, by queries and keys; backward finds the links again."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, x: Tensor, operator: SparseStoneOperator
    ) -> tuple[Tensor, Tensor]:  # [B, H, L, Dx], [B, H, L, 1]
        flat = x.flatten(0, 1)
        total, degree = torch.zeros_like(flat), flat.new_zeros(flat.shape[:2])
        means = [share_out(scores, flat, total, degree) for _, scores in operator.blocks()]
        ctx.operator = operator
        ctx.save_for_backward(query, key, x, *means)
        return total.view_as(x), degree.view(*x.shape[:3], 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, to_degree: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        refuse_second_derivatives()
        query, key, x, *means = ctx.saved_tensors
        operator, scale = ctx.operator, ctx.operator.incidence.source.scale
        grad, flat = grad.contiguous().flatten(0, 1), x.flatten(0, 1)
        to_degree, scaled = to_degree.reshape(flat.shape[:2]), scale * query
        to_query, to_key, to_x = (torch.zeros_like(y) for y in (query, key, flat))
        for (index, scores), mean in zip(operator.blocks(), means, strict=True):
            to_scores = give_back(scores, flat, mean, grad, to_degree, to_x)
            to_scores = to_scores.view(*key.shape[:2], -1, key.size(2))
            if index is None:
                to_key += to_scores @ scaled
                to_query += to_scores.mT @ key
            else:
                rows = index.unsqueeze(-1).expand(-1, -1, -1, key.size(-1))
                to_key.scatter_add_(2, rows, to_scores @ scaled)
                to_query += to_scores.mT @ key.gather(2, rows)
        return to_query.mul_(scale), to_key, to_x.view_as(x), None
