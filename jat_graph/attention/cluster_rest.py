"""What clusters read for their tokens: the scores of the cluster's query, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from jat_graph.attention.cluster_parts import (
    NOTHING,
    Dropout,
    Gradients,
    Sums,
    Tokens,
    differentiate_scores,
    draw_mask,
    masked,
    numbers_at_a_time,
    read_values,
)
from jat_graph.kernels.far_sums import gather_far, spread_far


class Rest:
    """The keys that a token does not read exactly, with the scores of its cluster."""

    def __init__(
        self,
        tokens: Tokens,
        queries: Tensor,  # of clusters, times the scale, [H, m, D]
        joined: Tensor,  # [H, n]
        best: Tensor,  # [H, m, keys]
        largest: Tensor,  # score of the other keys, [H, m]
    ) -> None:
        self.tokens, self.queries, self.largest = tokens, queries, largest
        # Blocks from a token's own to the nearest that it reads here, before and after it.
        self.reach = (2, 2) if tokens.margin else (0, 1)
        self.index = tokens.filled(joined.unsqueeze(-1)).squeeze(-1)
        self.shift = largest.gather(1, self.index).unsqueeze(-1)  # [H, blocks · block, 1]
        # Weights of so many blocks of keys are made at a time.
        size = 2 * numbers_at_a_time(queries.device)
        self.step = max(1, size // (queries[..., 0].numel() * tokens.block))
        # Best keys by position, the row of weights that each is in, and how many are before a step.
        self.position, order = best.flatten().sort()
        self.row = order // max(best.size(-1), 1)
        starts = torch.arange(0, tokens.blocks + self.step, self.step, device=best.device)
        self.bounds: list[int] = torch.searchsorted(self.position, starts * tokens.block).tolist()

    def _pieces(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield some blocks, and the weights of their keys, [H, blocks, m, block]."""
        tokens, shift = self.tokens, -self.largest.unsqueeze(-1)
        for start in range(0, tokens.blocks, self.step):
            blocks = slice(start, min(start + self.step, tokens.blocks))
            inside = slice(start * tokens.block, blocks.stop * tokens.block)
            key = tokens.whole(tokens.key)[:, inside]
            weights = torch.baddbmm(shift, self.queries, key.mT).exp_()
            weights[..., max(tokens.length - inside.start, 0) :] = 0.0  # what fills the last block
            best = slice(*self.bounds[start // self.step :][:2])
            place = self.row[best] * weights.size(-1) + self.position[best] - inside.start
            weights.flatten().index_fill_(0, place, 0.0)
            yield blocks, weights.unflatten(-1, (-1, tokens.block)).transpose(1, 2)  # type: ignore[no-untyped-call]

    def read(self, kept: Dropout) -> Sums:
        """Return what the tokens read there; nothing is subtracted, so that nothing cancels."""
        values, (heads, clusters, _) = self.tokens.blocked(self.tokens.value), self.queries.shape
        sums = values.new_empty(heads, self.tokens.blocks, clusters, values.size(-1))
        for blocks, weights in self._pieces():
            sums[:, blocks] = read_values(weights, values[:, blocks], draw_mask(weights, kept))
        total = gather_far(sums, self.index, *self.reach)
        return Sums(total, self.shift.masked_fill(total[..., -1:] == 0, NOTHING))

    def differentiate(self, back: Gradients, kept: Dropout) -> Tensor:  # [H, m, D]
        """Add the gradients of keys and values; return those of the clusters' queries, scaled."""
        tokens = self.tokens
        # A larger factor belongs to weights that are 0 in this precision; sums must stay finite.
        limit = 70.0 if back.shift.dtype == torch.float32 else 600.0
        factor = (self.shift - back.shift).clamp_(max=limit).exp_()
        unit = back.grad.abs().amax().clamp(min=torch.finfo(factor.dtype).tiny)
        x = torch.cat([back.grad, -back.delta], -1).mul_(factor.div_(unit))
        # What comes from the tokens that read a block of keys, by cluster.
        grads = spread_far(x, self.index, (tokens.blocks, self.queries.size(1)), *self.reach)
        keys, values, by_keys, by_values = (
            tokens.blocked(part) for part in (tokens.key, tokens.value, back.key, back.value)
        )
        by_query = torch.zeros_like(self.queries)
        for blocks, weights in self._pieces():
            grad, mask = grads[:, blocks], draw_mask(weights, kept)
            by_values[:, blocks] += masked(weights, mask).mT @ grad * unit
            by_score = differentiate_scores(grad, values[:, blocks], mask).mul_(weights)
            by_query += (by_score @ keys[:, blocks]).sum(1)
            by_keys[:, blocks] += by_score.mT @ self.queries.unsqueeze(1) * unit
        return by_query.mul_(unit)
